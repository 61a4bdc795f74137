"""Which annotations of our custom resources cannot be read: what the reconciler reports about them."""

from datetime import datetime

from gpu_platform.domain import names
from gpu_platform.domain.json_text import Json
from gpu_platform.domain.metadata import BadMetadata, annotations_of, bad_metadata, read_instant, read_json
from gpu_platform.domain.mount_holds import hold_of
from gpu_platform.domain.stacks import read_intent

INSTANTS = (names.ANNOTATION_CLAIMED_AT, names.ANNOTATION_WOKEN_AT, names.ANNOTATION_MOUNTED_AT)


def find_bad_metadata(item: Json, now: datetime) -> tuple[BadMetadata, ...]:
    """
    | annotation                       | is bad when                                                             |
    | -------------------------------- | ----------------------------------------------------------------------- |
    | accepted-spec                    | it is no spec of the object's kind, or over a limit of `metadata`       |
    | claimed-at, woken-at, mounted-at | it is no instant, or in the future                                      |
    | spare-tokens                     | it is no JSON object                                                    |
    | claimed-by                       | it is not `namespace/name`                                              |
    | mounted-by                       | it is neither `unit/name` nor `storage/name`                            |
    """
    objects = (read_intent(item), read_json(item, names.ANNOTATION_SPARE_TOKENS))
    read = (*objects, *(read_instant(item, key, now) for key in INSTANTS))
    return (*(each for each in read if isinstance(each, BadMetadata)), *_find_bad_holders(item))


def _find_bad_holders(item: Json) -> list[BadMetadata]:
    annotations = annotations_of(item)
    found = []
    namespace, _, name = annotations.get(names.ANNOTATION_CLAIMED_BY, "").partition("/")
    if names.ANNOTATION_CLAIMED_BY in annotations and not (names.is_label(namespace) and names.is_label(name)):
        found.append(bad_metadata(item, names.ANNOTATION_CLAIMED_BY, "it is not `namespace/name` of a unit"))
    if names.ANNOTATION_MOUNTED_BY in annotations and hold_of(item) is None:
        found.append(bad_metadata(item, names.ANNOTATION_MOUNTED_BY, "it is neither `unit/name` nor `storage/name`"))
    return found
