"""Names that several processes must agree on: API group, namespaces, labels, annotations, derived object names."""

import hashlib
import re

GROUP = "runtime.lokiwager.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

SYSTEM_NAMESPACE = "runtime-system"
STOCK_NAMESPACE = "runtime-stock"
DEFAULT_INSTANCE_NAMESPACE = "runtime-instance"
INSTANCE_NAMESPACE_PREFIX = "runtime-instance-"

EMBEDDED_CONTEXT = "gpu-platform-dev"
"""The context in an embedded cluster's kubeconfig. `Pulumi.dev.yaml` requires it, so it is no name that another
cluster is likely to have."""

EMBEDDED_CLUSTER = f"{GROUP}/embedded"
"""The extension in a kubeconfig that marks its cluster as an embedded one."""

LABEL_NAME = "app.kubernetes.io/name"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_UNIT = f"{GROUP}/unit"
LABEL_UNIT_UID = f"{GROUP}/unit-uid"
LABEL_TEMPLATE = f"{GROUP}/template"
LABEL_POOL = f"{GROUP}/pool"
LABEL_FUNCTION = f"{GROUP}/function"
LABEL_STOCK_STATE = f"{GROUP}/stock-state"
LABEL_STORAGE = f"{GROUP}/storage"
LABEL_STORAGE_PREPARE = f"{GROUP}/storage-prepare"
LABEL_STORAGE_ACCESSOR = f"{GROUP}/storage-accessor"
NAME_VALUE = "gpu-runtime-unit"
STORAGE_NAME_VALUE = "gpu-runtime-storage"
API_NAME_VALUE = "gpu-platform-api"
"""Of the API's own pods, which are the only ones that may call a unit."""

MANAGED_BY_VALUE = "gpu-runtime-operator"
STOCK_FREE = "free"
STOCK_CLAIMED = "claimed"

ANNOTATION_OPERATION_ID = f"{GROUP}/operation-id"
ANNOTATION_REQUEST_HASH = f"{GROUP}/request-hash"
ANNOTATION_CLAIMED_BY = f"{GROUP}/claimed-by"
ANNOTATION_CLAIMED_AT = f"{GROUP}/claimed-at"
ANNOTATION_WOKEN_AT = f"{GROUP}/woken-at"
ANNOTATION_SOURCE_STOCK_NAME = f"{GROUP}/source-stock-name"
ANNOTATION_SOURCE_STOCK_NAMESPACE = f"{GROUP}/source-stock-namespace"
ANNOTATION_SOURCE_STOCK_UID = f"{GROUP}/source-stock-uid"
ANNOTATION_ACCEPTED_SPEC = f"{GROUP}/accepted-spec"
ANNOTATION_SPARE_TOKENS = f"{GROUP}/spare-tokens"
ANNOTATION_OWNER_STACK = f"{GROUP}/owner-stack"
ANNOTATION_HOST_ADDRESS = f"{GROUP}/host-address"
ANNOTATION_FIELDS = f"{GROUP}/fields"
ANNOTATION_TEMPLATE = f"{GROUP}/made-template"
ANNOTATION_MOUNTED_BY = f"{GROUP}/mounted-by"
ANNOTATION_MOUNTED_AT = f"{GROUP}/mounted-at"
ANNOTATION_MOUNTED_UID = f"{GROUP}/mounted-uid"
ANNOTATION_RECOVERY_NONCE = f"{GROUP}/storage-recovery-nonce"
ANNOTATION_PREPARED_DIGEST = f"{GROUP}/prepared-digest"

STORAGE_FINALIZER = f"{GROUP}/storage-in-use"

GPU_RESOURCE = "nvidia.com/gpu"
STOCK_PRIORITY_CLASS = "gpu-runtime-stock"
UNIT_PRIORITY_CLASS = "gpu-runtime-unit"

UNIT_NAME_LIMIT = 40
"""So that nothing derived from a unit's or storage's name is ever truncated."""

UNIT_NAME_RULE = f"should be 1 to {UNIT_NAME_LIMIT} lower-case letters, digits and inner hyphens"

_DNS_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")


def is_label(text: str) -> bool:
    """Whether the text is a DNS label, as the names of namespaces and of most objects are."""
    return len(text) <= 63 and _DNS_LABEL.fullmatch(text) is not None


def is_unit_name(text: str) -> bool:
    return len(text) <= UNIT_NAME_LIMIT and _DNS_LABEL.fullmatch(text) is not None


def child_name(unit: str) -> str:
    """Name of the unit's Deployment, Service and NetworkPolicy."""
    return f"unit-{unit}"


def service_host(unit: str, namespace: str) -> str:
    return f"{child_name(unit)}.{namespace}.svc.cluster.local"


def public_host(unit: str, namespace: str, domain: str) -> str:
    """The unit's name on the internet. One label below the domain, so that one certificate serves all; no two tenants
    can have the same, whatever they call their units."""
    return f"{unit}-{hashlib.sha256(f'{namespace}/{unit}'.encode()).hexdigest()[:10]}.{domain}"


def stock_unit_name(pool: str, ordinal: int) -> str:
    return f"{pool}-{ordinal}"


def worker_name(function: str, ordinal: int) -> str:
    return f"{function}-worker-{ordinal}"


def parse_worker_name(unit: str) -> tuple[str, int] | None:
    """The function and the ordinal; None for a name that no worker has."""
    function, separator, ordinal = unit.rpartition("-worker-")
    is_ordinal = ordinal.isascii() and ordinal.isdecimal() and str(int(ordinal)) == ordinal
    return (function, int(ordinal)) if separator and is_ordinal else None


def function_secret(function: str) -> str:
    """Name of the Secret with the credentials of a function's workers."""
    return f"function-{function}"


def ssh_token_secret(unit: str, token_hash: str) -> str:
    """Name of the Secret with a unit's FRP token: another token is another Secret, so that none is ever overwritten."""
    return f"ssh-token-{unit}-{token_hash[:10]}"


def prepare_job_name(storage: str, digest: str) -> str:
    """Enough of the digest to tell preparations of one storage apart, and short enough to stay a label."""
    return f"prep-{storage}-{digest[:10]}"


ACCESSOR_PORT = 5_000


def accessor_name(storage: str) -> str:
    """Name of the Deployment and the Service of a storage's file browser."""
    return f"accessor-{storage}"


def storage_policy_name(storage: str) -> str:
    """Name of the NetworkPolicy around what prepares and shows a storage."""
    return f"storage-{storage}"


def storage_labels(storage: str) -> dict[str, str]:
    """On every object and pod of a storage, its claim included."""
    return {LABEL_NAME: STORAGE_NAME_VALUE, LABEL_MANAGED_BY: MANAGED_BY_VALUE, LABEL_STORAGE: storage}


def unit_labels(unit: str) -> dict[str, str]:
    """On every owned object and pod."""
    return {LABEL_NAME: NAME_VALUE, LABEL_MANAGED_BY: MANAGED_BY_VALUE, LABEL_UNIT: unit}


def is_stock_namespace(namespace: str) -> bool:
    """A unit's namespace is its role: stock in one, instances in all others."""
    return namespace == STOCK_NAMESPACE


def claim_holder(namespace: str, unit: str) -> str:
    """The value of `claimed-by`: the unit for which the stock is held."""
    return f"{namespace}/{unit}"


def owner_reference(kind: str, name: str, uid: str) -> dict[str, str | bool]:
    """What makes an object go with its owner, one of our custom resources."""
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
