"""`python -m stacks.restore`: makes an empty cluster whole again from the stacks. Also `gpu-platform restore`."""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path

from gpu_platform.kube.connection import NoConnectionError
from gpu_platform.process import configure_json_logs
from gpu_platform.settings import SettingsError
from stacks.restore.observe import MisusedError, RestoreFailedError
from stacks.restore.plan import Outcome, Result
from stacks.restore.process import Wish, restore
from stacks.restore.report import print_outcomes, print_plan, telling
from stacks.runner.results import UnfitPulumiError
from stacks.settings import load_stack_worker_settings

FAILED = 1
MISUSED = 2
INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="stacks.restore", description="Makes a cluster whole again from the stacks.")
    parser.add_argument("--config", type=Path, help="the stack worker's settings as YAML")
    parser.add_argument("--only", action="append", default=[], help="such as gpu-unit/default.train or 'gpu-unit/*'")
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, and write nothing")
    parser.add_argument(
        "--break-locks", action="store_true", help="also locks of other hosts, whose holder nobody knows"
    )
    parser.add_argument("--json", action="store_true", help="print the result for machines")
    chosen = parser.parse_args(arguments)
    wish = Wish(tuple(chosen.only), dry_run=chosen.dry_run, break_locks=chosen.break_locks)
    # What happens to a stack is told at the end, in words for people.
    configure_json_logs("error")
    began_at = time.monotonic()
    try:
        settings = load_stack_worker_settings(chosen.config, os.environ)
        with telling(is_quiet=chosen.json) as teller:
            planned, outcomes = asyncio.run(restore(settings, os.environ, wish, teller))
    except (SettingsError, NoConnectionError, UnfitPulumiError, MisusedError) as error:
        sys.stderr.write(f"error: {error}\n")
        return MISUSED
    except RestoreFailedError as error:
        sys.stderr.write(f"error: {error}\n")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    if wish.dry_run:
        print_plan(list(planned.steps.items()), as_json=chosen.json)
        return 0
    print_outcomes(outcomes, time.monotonic() - began_at, as_json=chosen.json)
    return choose_exit_code(outcomes)


def choose_exit_code(outcomes: list[Outcome]) -> int:
    results = {outcome.result for outcome in outcomes}
    if Result.INTERRUPTED in results:
        return INTERRUPTED
    return FAILED if Result.FAILED in results else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
