"""The stacks of the backend and what each of them keeps. Runs in threads: files are read, or the CLI is asked."""

from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Any

from gpu_platform.domain.stacks import StackAddress
from stacks.restore.checkpoints import Kept, NotKept, find_salt, parse_checkpoint
from stacks.restore.failures import RestoreFailedError
from stacks.runner import StackFailedError, StackRunner
from stacks.runner.encryption import fits
from stacks.runner.listing import SHARDS

Json = dict[str, Any]

UNFIT = "the passphrase is another one than that of the state; name the right one as passphraseFile"


def list_addresses(runner: StackRunner, executor: Executor, backend_url: str) -> tuple[StackAddress, ...]:
    try:
        return tuple(address for found in executor.map(runner.list_root, SHARDS) for address in found)
    except StackFailedError as error:
        raise RestoreFailedError(
            f"the stacks in {backend_url} cannot be listed: {error.message}. Name the backend of the lost cluster as "
            "backendURL or PULUMI_BACKEND_URL"
        ) from error


def read_all(
    runner: StackRunner, executor: Executor, addresses: Iterable[StackAddress], passphrase: str
) -> dict[StackAddress, Kept | NotKept]:
    """RestoreFailedError when the passphrase fits none of them: then nothing that Pulumi starts could succeed."""
    addresses = tuple(addresses)
    states = dict(zip(addresses, executor.map(_reader(runner), addresses), strict=True))
    salts = Counter(salt for state in states.values() if not isinstance(state, NotKept) and (salt := find_salt(state)))
    wrong = {salt for salt in salts if not fits(salt, passphrase)}
    if salts and wrong == set(salts):
        raise RestoreFailedError(f"no stack can be opened: {UNFIT}")
    if fitting := [salt for salt, _ in salts.most_common() if salt not in wrong]:
        runner.use_salt(fitting[0])
    return {address: _parse(address, state, wrong) for address, state in states.items()}


def _parse(address: StackAddress, state: Json | NotKept | None, wrong_salts: set[str]) -> Kept | NotKept:
    if isinstance(state, NotKept):
        return state
    return NotKept(UNFIT) if find_salt(state) in wrong_salts else parse_checkpoint(address, state)


def _reader(runner: StackRunner) -> Callable[[StackAddress], Json | NotKept | None]:
    def read(address: StackAddress) -> Json | NotKept | None:
        try:
            return runner.read_state(address)
        except StackFailedError as error:
            return NotKept(error.message)

    return read
