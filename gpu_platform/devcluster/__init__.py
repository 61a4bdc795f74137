"""The embedded default: gets the real parts and runs them on one machine. For development only."""
