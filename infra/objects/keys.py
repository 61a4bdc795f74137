"""The Secret from which the API reads its keys: hashes only."""

import base64
import json
from collections.abc import Mapping

from gpu_platform.domain.api_keys import KEYS_SECRET
from gpu_platform.domain.names import SYSTEM_NAMESPACE
from infra.objects.metadata import Json, build_metadata
from infra.sections import ApiKey


def build_keys(keys: Mapping[str, ApiKey]) -> Json:
    records = {key_id: json.dumps(record.to_json(), sort_keys=True) for key_id, record in keys.items()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": build_metadata(KEYS_SECRET, SYSTEM_NAMESPACE),
        "type": "Opaque",
        "data": {key_id: base64.b64encode(record.encode()).decode() for key_id, record in records.items()},
    }
