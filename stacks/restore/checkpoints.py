"""What a stack's state says of the one object that the stack is about. Pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpu_platform.domain.stacks import SPECS, Intent, StackAddress, StackKind
from gpu_platform.domain.units import accepted_text
from providers.cluster.package import GPU_FUNCTION, GPU_STORAGE, GPU_UNIT, STOCK_POOL

Json = dict[str, Any]

TOKENS = {
    StackKind.GPU_UNIT: GPU_UNIT,
    StackKind.GPU_STORAGE: GPU_STORAGE,
    StackKind.GPU_FUNCTION: GPU_FUNCTION,
    StackKind.STOCK_POOL: STOCK_POOL,
}


@dataclass(frozen=True)
class Kept:
    """Enough to make the object again. The uid is the one that it had."""

    intent: Intent
    at: datetime | None
    """When Pulumi last wrote the state."""

    @property
    def spec_name(self) -> str | None:
        """The GPUSpec that it needs; None for what needs none, such as a storage."""
        name: str | None = self.intent.spec.get("specName")
        return name

    @property
    def runs(self) -> bool:
        """Whether it is a unit that needs GPUs, which stock holds."""
        return self.intent.address.kind is StackKind.GPU_UNIT and bool(self.intent.spec.get("running", True))


@dataclass(frozen=True)
class NotKept:
    reason: str
    is_empty: bool = False
    """Pulumi began, and recorded nothing: there is nothing to be missed."""


def parse_checkpoint(address: StackAddress, state: Json | None) -> Kept | NotKept:
    try:
        latest = (state or {}).get("checkpoint", {}).get("latest") or {}
        found = [each for each in latest.get("resources") or () if each["type"] == TOKENS[address.kind]]
        # Of a replacement that was never finished, the old one is marked.
        resource = next((each for each in found if not each.get("delete")), None)
        if resource is None:
            return NotKept("nothing was recorded in it", is_empty=True)
        return _parse_resource(address, resource, _time_of(latest))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return NotKept(f"its state cannot be read: {' '.join(str(error).split())}")


def find_salt(state: Json | None) -> str | None:
    """With which the passphrase is tried; None where the secrets are not under a passphrase."""
    try:
        keeper = (state or {})["checkpoint"]["latest"]["secrets_providers"]
        return str(keeper["state"]["salt"]) if keeper["type"] == "passphrase" else None
    except (AttributeError, KeyError, TypeError):
        return None


def _parse_resource(address: StackAddress, resource: Json, at: datetime | None) -> Kept | NotKept:
    inputs, outputs = resource["inputs"], resource.get("outputs") or {}
    if (tenant := inputs.get("tenant", address.tenant), inputs["name"]) != (address.tenant, address.name):
        return NotKept(f"its state is about {tenant}.{inputs['name']}, which has another stack")
    spec = SPECS[address.kind].model_validate(inputs["spec"])
    return Kept(
        Intent(
            address=address,
            uid=str(outputs.get("uid") or ""),
            accepted_spec=accepted_text(spec),
            operation_id=str(inputs.get("operationID") or ""),
            request_hash=str(inputs.get("requestHash") or ""),
        ),
        at,
    )


def _time_of(latest: Json) -> datetime | None:
    try:
        return datetime.fromisoformat(latest["manifest"]["time"])
    except (KeyError, TypeError, ValueError):
        return None
