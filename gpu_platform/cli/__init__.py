"""The `gpu-platform` command."""
