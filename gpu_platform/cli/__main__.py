"""`python -m gpu_platform.cli` is the `gpu-platform` command."""

from gpu_platform.cli.app import main

main()
