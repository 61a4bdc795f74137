"""GPUStorages: the claim, its preparation, the file browser, and protection while they are in use."""
