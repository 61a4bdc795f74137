"""`python -m reconciler`: reads the settings and runs the daemon. Also started by `gpu-platform reconciler`."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gpu_platform.controller.probes import CannotListenError
from gpu_platform.kube.connection import NoConnectionError
from gpu_platform.process import configure_json_logs
from gpu_platform.settings import SettingsError
from reconciler.process import BuildLoops, run_reconciler
from reconciler.settings import load_reconciler_settings
from reconciler.wiring import build_loops

MISUSED = 2
"""Exit code: the person who started it must change something."""


def main(arguments: list[str], wiring: BuildLoops) -> int:
    parser = argparse.ArgumentParser(prog="reconciler", description="Makes the cluster match what was asked for.")
    parser.add_argument("--config", type=Path, help="settings as YAML; the environment comes over them")
    config = parser.parse_args(arguments).config
    try:
        settings = load_reconciler_settings(config, os.environ)
        configure_json_logs(settings.log_level)
        asyncio.run(run_reconciler(settings, wiring))
    except (SettingsError, NoConnectionError, CannotListenError) as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build_loops))
