"""What the worker knows of one stack, from its caches."""

from collections.abc import Iterable

from gpu_platform.controller.loop import Key
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from gpu_platform.domain.stack_plan import Records
from gpu_platform.domain.stacks import LABEL_KIND, StackAddress, address_of, parse_address, parse_record
from gpu_platform.kube import KubeClient
from gpu_platform.kube.informer import ObjectCache, WatchTiming
from gpu_platform.kube.paths import LEASES, OPERATIONS
from gpu_platform.store.stack_leases import PATHS, build_records, creation_name, deletion_name


class StackWorld:
    def __init__(self, client: KubeClient, timing: WatchTiming) -> None:
        self.objects = {kind: ObjectCache(client, path, timing=timing) for kind, path in PATHS.items()}
        """Whatever has stacks, by kind."""

        self.operations = ObjectCache(client, OPERATIONS, timing=timing)
        # Of one namespace: the worker may see no other Leases.
        self.leases = ObjectCache(client, LEASES, namespace=SYSTEM_NAMESPACE, label_selector=LABEL_KIND, timing=timing)

    @property
    def caches(self) -> tuple[ObjectCache, ...]:
        return (*self.objects.values(), self.operations, self.leases)

    def find_lease(self, address: StackAddress) -> Json | None:
        return self.leases.get(SYSTEM_NAMESPACE, address.lease)

    def observe(self, address: StackAddress) -> Records:
        item = self.objects[address.kind].get(address.namespace, address.name)
        stack = parse_record(self.find_lease(address))
        return build_records(
            item,
            stack,
            self.operations.get(address.namespace, deletion_name(address, item, stack)),
            self.operations.get(address.namespace, creation_name(address, stack)),
        )


def keys_of_object(item: Json) -> Iterable[Key]:
    address = address_of(item)
    return [key_of(address)] if address is not None else []


def keys_of_lease(lease: Json) -> Iterable[Key]:
    record = parse_record(lease)
    return [key_of(record.address)] if record is not None else []


def keys_of_operation(operation: Json) -> Iterable[Key]:
    """An operation says its target's kind, and so which stack it concerns."""
    target = operation["spec"]["target"]
    return keys_of_object({"kind": target["kind"], "metadata": target})


def key_of(address: StackAddress) -> Key:
    return address.project, address.stack


def address_of_key(project: str, stack: str) -> StackAddress:
    address = parse_address(project, stack)
    if address is None:
        raise ValueError(f"{project}/{stack} is no stack of ours")
    return address
