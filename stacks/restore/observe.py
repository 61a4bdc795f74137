"""What backend and cluster know of the stacks: all of it at the beginning, and of one again right before it is run.

The backend is read in threads: files are read, or the CLI is asked.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, replace

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.operations import delete_operation_name, operation_name
from gpu_platform.domain.stacks import LABEL_KIND, StackAddress, StackRecord, address_of, parse_record
from gpu_platform.kube import KubeClient, KubeError, NotFoundError, ResourcePath
from gpu_platform.kube.paths import GPU_SPECS, LEASES, NAMESPACES, OPERATIONS
from gpu_platform.kube.requests import find, list_pages
from gpu_platform.pulumi_protocol.resource import describe
from gpu_platform.store.stack_leases import PATHS
from stacks.restore.plan import Kept, NotKept, Observed, find_salt, parse_checkpoint
from stacks.runner import StackFailedError, StackRunner
from stacks.runner.backend import SHARDS, fits

PAGE = 500
UNFIT = "the passphrase is another one than that of the state; name the right one as passphraseFile"


class RestoreFailedError(Exception):
    """Nothing can be restored like this."""


class MisusedError(RestoreFailedError):
    """The person who asked has to ask for something else."""


@dataclass(frozen=True)
class Seen:
    """One stack, as the cluster shows it now."""

    observed: Observed
    lease: Json | None
    """Its entry in the index, to be written as it was seen."""


@dataclass(frozen=True)
class Snapshot:
    items: dict[StackAddress, Json]
    leases: dict[str, Json]
    operations: frozenset[tuple[str, str]]
    """Namespace and name of each."""

    namespaces: frozenset[str]
    specs: frozenset[str]

    def recall(self, address: StackAddress, kept: Kept | NotKept) -> Kept | NotKept:
        """What the index says, where the state says nothing: a run that failed may have emptied it."""
        record = parse_record(self.leases.get(address.lease))
        if isinstance(kept, Kept) or not kept.is_empty or record is None or record.recorded is None:
            return kept
        return Kept(record.intent, record.recorded.at) if record.intent is not None else kept

    def observe(self, address: StackAddress, kept: Kept | NotKept) -> Observed:
        item, record = self.items.get(address), parse_record(self.leases.get(address.lease))
        names_of = _Names.of(address, kept, item, record)
        return Observed(
            kept=kept,
            item=item,
            record=record,
            is_delete_asked=any((address.namespace, name) in self.operations for name in names_of.deletions),
            is_in_ledger=(address.namespace, names_of.creation) in self.operations,
            has_namespace=address.namespace in self.namespaces,
            has_spec=isinstance(kept, Kept) and (kept.spec_name is None or kept.spec_name in self.specs),
        )

    async def look(self, client: KubeClient, address: StackAddress, kept: Kept | NotKept) -> Seen:
        """As `observe`, asked of the API server now; the catalogue and the namespaces are those of the beginning."""
        item, lease = await asyncio.gather(
            find(client, PATHS[address.kind], address.name, address.namespace),
            find(client, LEASES, address.lease, SYSTEM_NAMESPACE),
        )
        names_of = _Names.of(address, kept, item, parse_record(lease))
        found = await asyncio.gather(
            *(find(client, OPERATIONS, name, address.namespace) for name in (names_of.creation, *names_of.deletions))
        )
        now = replace(
            self,
            items={address: item} if item is not None else {},
            leases={address.lease: lease} if lease is not None else {},
            operations=frozenset((address.namespace, each["metadata"]["name"]) for each in found if each is not None),
        )
        return Seen(now.observe(address, kept), lease)


@dataclass(frozen=True)
class _Names:
    """Of the Operations that say something about one stack."""

    creation: str
    deletions: frozenset[str]

    @classmethod
    def of(cls, address: StackAddress, kept: Kept | NotKept, item: Json | None, record: StackRecord | None) -> "_Names":
        tenant = address.ledger_tenant
        intent = kept.intent if isinstance(kept, Kept) else None
        uids = {
            intent.uid if intent else "",
            record.uid if record else "",
            item["metadata"]["uid"] if item is not None else "",
        }
        return cls(
            creation=operation_name(tenant, intent.operation_id if intent else ""),
            deletions=frozenset(delete_operation_name(tenant, uid) for uid in uids if uid),
        )


async def take_snapshot(client: KubeClient) -> Snapshot:
    """RestoreFailedError when there is no platform to restore into."""
    namespaces = frozenset(each["metadata"]["name"] for each in await _list(client, NAMESPACES))
    if SYSTEM_NAMESPACE not in namespaces:
        raise _not_bootstrapped(client, f"no namespace {SYSTEM_NAMESPACE}")
    objects = [item for path in PATHS.values() for item in await _list(client, path)]
    specs, operations = await _list(client, GPU_SPECS), await _list(client, OPERATIONS)
    leases = await _list(client, LEASES, SYSTEM_NAMESPACE, LABEL_KIND)
    return Snapshot(
        items=dict(_addressed(objects)),
        leases={lease["metadata"]["name"]: lease for lease in leases},
        operations=frozenset((each["metadata"]["namespace"], each["metadata"]["name"]) for each in operations),
        namespaces=namespaces,
        specs=frozenset(spec["metadata"]["name"] for spec in specs),
    )


def _addressed(items: Iterable[Json]) -> Iterable[tuple[StackAddress, Json]]:
    for item in items:
        if (address := address_of(item)) is not None:
            yield address, item


async def _list(
    client: KubeClient, path: ResourcePath, namespace: str | None = None, label_selector: str | None = None
) -> list[Json]:
    selector = {"labelSelector": label_selector} if label_selector else {}
    try:
        pages = [page async for page in list_pages(client, path.collection(namespace), selector, PAGE)]
    except NotFoundError as error:
        raise _not_bootstrapped(client, f"no {path.plural}") from error
    except KubeError as error:
        raise RestoreFailedError(describe(error, path.plural, client.server)) from error
    # The items of a list say their kind only in the list's own.
    return [{"kind": page["kind"].removesuffix("List"), **item} for page in pages for item in page["items"]]


def _not_bootstrapped(client: KubeClient, lack: str) -> RestoreFailedError:
    return RestoreFailedError(
        f"the cluster at {client.server} has {lack}: it is not the platform yet. Run `gpu-platform bootstrap up "
        "--refresh` first"
    )


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
