"""`python -m platform_api`: reads the settings and serves the API. Also started by `gpu-platform api`."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from gpu_platform.controller.probes import CannotListenError
from gpu_platform.kube import NoConnectionError
from gpu_platform.process import configure_json_logs
from gpu_platform.settings import SettingsError
from platform_api.process import NoClusterError, run_api
from platform_api.settings import load_api_settings

NO_CLUSTER = 1
MISUSED = 2
"""Exit code: the person who started it must change something."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="platform_api", description="Serves the platform's REST API.")
    parser.add_argument("--config", type=Path, help="settings as YAML; the environment comes over them")
    config = parser.parse_args(arguments).config
    try:
        settings = load_api_settings(config, os.environ)
        configure_json_logs(settings.log_level)
        asyncio.run(run_api(settings))
    except NoClusterError as error:
        sys.stderr.write(f"error: {error}\n")
        return NO_CLUSTER
    except (SettingsError, NoConnectionError, CannotListenError) as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
