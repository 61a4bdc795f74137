"""What all of our declared objects carry."""

from typing import Any

from gpu_platform.domain.names import LABEL_MANAGED_BY, LABEL_NAME

Json = dict[str, Any]

LABEL_PART_OF = "app.kubernetes.io/part-of"
PLATFORM = "gpu-platform"


def build_metadata(
    name: str,
    namespace: str | None = None,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Json:
    # The reconciler looks for its own objects by `managed-by`; these say another name and are left alone.
    own = {LABEL_PART_OF: PLATFORM, LABEL_MANAGED_BY: "pulumi"}
    return {
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "labels": own | (labels or {}),
        **({"annotations": annotations} if annotations else {}),
    }


def app_labels(app: str) -> dict[str, str]:
    """By which Services, policies and budgets find an app's pods."""
    return {LABEL_NAME: app}
