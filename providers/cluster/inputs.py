"""Check and Diff: a program's inputs in the form in which they are kept, or refused field by field; what an update
would change, and what only another object can have. Nothing is asked of the cluster."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from gpu_platform.domain.crds import build_schema, fill_defaults
from gpu_platform.domain.functions import GPUFunctionSpec, check_function
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.quantities import QuantityError, parse_amount
from gpu_platform.domain.specs import GPUSpecSpec
from gpu_platform.domain.storages import GPUStorageSpec, check_prepare, normalise_size
from gpu_platform.domain.tenants import DEFAULT_TENANT, TENANT_NAME
from gpu_platform.domain.units import (
    GPUUnitSpec,
    check_serverless,
    check_template,
    normalise_access,
    normalise_mounts,
    normalise_ssh,
)
from gpu_platform.domain.value import RequestError, Value, sentence_of
from gpu_platform.pulumi_protocol.properties import (
    Change,
    Path,
    Unknown,
    contains_unknown,
    find_changes,
    path_text,
    without_nulls,
)
from gpu_platform.pulumi_protocol.resource import Difference, Failure
from providers.cluster.kinds import PROVENANCE, Kind

OPERATION_ID_LIMIT = 200
UID_LIMIT = 63
REQUEST_HASH = re.compile(r"[0-9a-f]{64}")
IDENTITY = ("tenant", "name")


@dataclass(frozen=True)
class Checked:
    inputs: Json
    failures: tuple[Failure, ...] = ()


def check_inputs(kind: Kind, news: Json) -> Checked:
    """The inputs with all their defaults said, so that what is left out and what is said alike make no difference."""
    inputs = _with_tenant(kind, without_nulls(news))
    # An empty text is how a program says that it does not know where its object comes from.
    inputs = {key: value for key, value in inputs.items() if key not in PROVENANCE or value != ""}
    failures = (*_find_failures(kind, inputs), *_find_spec_failures(kind, inputs.get("spec")))
    if failures or not isinstance(inputs["spec"], dict):
        return Checked(inputs, failures)
    return Checked({**inputs, "spec": normalise_spec(kind, inputs["spec"])})


def normalise_spec(kind: Kind, spec: Json) -> Json:
    """As the model writes it. Around what is not known yet, the defaults are filled in all the same."""
    if contains_unknown(spec):
        filled: Json = fill_defaults(build_schema(kind.model), spec)
        return filled
    return kind.model.model_validate(spec).to_json()


def _with_tenant(kind: Kind, inputs: Json) -> Json:
    return {"tenant": DEFAULT_TENANT, **inputs} if kind.is_of_tenant else inputs


def _find_failures(kind: Kind, inputs: Json) -> Iterator[Failure]:
    for field in inputs:
        if field not in kind.inputs:
            yield Failure(path_text((field,)), f"is not an input; there are {', '.join(kind.inputs)}")
    for field in ("name", "spec"):
        if field not in inputs:
            yield Failure(field, "is required")
    for field, is_right, rule in (
        ("name", kind.is_name, kind.name_rule),
        (
            "tenant",
            TENANT_NAME.fullmatch,
            "should be the name of a tenant: lower-case letters, digits and inner hyphens",
        ),
        (
            "operationID",
            lambda text: len(text) <= OPERATION_ID_LIMIT,
            f"should have at most {OPERATION_ID_LIMIT} characters",
        ),
        ("requestHash", REQUEST_HASH.fullmatch, "should be a SHA-256 in 64 hexadecimal digits, or be left out"),
        ("objectUID", lambda text: len(text) <= UID_LIMIT, f"should have at most {UID_LIMIT} characters"),
    ):
        value = inputs.get(field)
        if isinstance(value, Unknown) or value is None or field not in kind.inputs:
            continue
        if not isinstance(value, str) or not is_right(value):
            yield Failure(field, rule)


def _find_spec_failures(kind: Kind, spec: Any) -> Iterator[Failure]:
    if isinstance(spec, Unknown) or spec is None:
        return
    if not isinstance(spec, dict):
        yield Failure("spec", f"should be a map, as the spec of a {kind.name}")
        return
    try:
        model = kind.model.model_validate(_as_tuples(spec), strict=True, extra="forbid", by_alias=True, by_name=False)
    except ValidationError as error:
        for each in error.errors(include_url=False, include_context=False):
            # What is not known yet has no type. That nobody knows the field is certain all the same.
            if each["type"] == "extra_forbidden" or not isinstance(each["input"], Unknown):
                yield Failure(path_text(("spec", *each["loc"])), sentence_of(each))
        return
    yield from _find_meaning_failures(model)


def _find_meaning_failures(spec: Value) -> Iterator[Failure]:
    """What the fields' types alone cannot see."""
    try:
        match spec:
            case GPUUnitSpec():
                check_template(spec.template)
                normalise_access(spec.template, spec.access)
                check_serverless(spec.serverless)
                normalise_ssh(spec.template, spec.ssh)
                normalise_mounts(spec.storage_mounts)
            case GPUStorageSpec():
                normalise_size(spec.size)
                if spec.prepare is not None:
                    check_prepare(spec.prepare)
            case GPUFunctionSpec():
                check_function(spec)
    except RequestError as error:
        yield Failure(f"spec.{error.field}", error.message)
    for field in ("cpu", "memory", "ephemeral_storage") if isinstance(spec, GPUSpecSpec | GPUUnitSpec) else ():
        amount = getattr(spec, field, None)
        try:
            if amount is not None:
                parse_amount(amount)
        except QuantityError as error:
            yield Failure(f"spec.{type(spec).model_fields[field].alias}", str(error))


def _as_tuples(value: Any) -> Any:
    """The strict models want tuples where JSON has lists."""
    if isinstance(value, dict):
        return {key: _as_tuples(each) for key, each in value.items()}
    return tuple(_as_tuples(each) for each in value) if isinstance(value, list) else value


def find_difference(kind: Kind, old_inputs: Json, outputs: Json, news: Json) -> Difference:
    """
    | place                                         | change                                  |
    | --------------------------------------------- | --------------------------------------- |
    | operationID, requestHash, objectUID           | none: they say where an object is from  |
    | name, tenant                                  | replace                                 |
    | a field of the spec that is fixed             | replace                                 |
    | one that is fixed once set, and was not set   | update                                  |
    | any other                                     | update                                  |
    | nothing, but nobody has accepted the object   | update: it becomes this program's       |
    """
    changes = {path: change for path, change in find_changes(old_inputs, news).items() if path[0] not in PROVENANCE}
    if not changes and outputs.get("acceptedHash") == "":
        changes = {("acceptedHash",): Change.UPDATE}
    replacing = frozenset(path for path, change in changes.items() if _is_replacing(kind, path, change))
    # The name is taken until the old object is gone, and so are its GPUs.
    return Difference(changes, replacing, delete_first=bool(replacing))


def _is_replacing(kind: Kind, path: Path, change: Change) -> bool:
    if path[0] in IDENTITY:
        return True
    field = path[1] if path[0] == "spec" and len(path) > 1 else None
    return field in kind.fixed or (field in kind.fixed_once_set and change is not Change.ADD)
