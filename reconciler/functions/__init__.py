"""GPUFunctions: their consumer, their workers' credentials, and as many workers as are wanted."""
