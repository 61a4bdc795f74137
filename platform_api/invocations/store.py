"""Records, bodies and lists of them, over one connection."""

from dataclasses import dataclass
from datetime import timedelta

from gpu_platform.nats.bodies import Bodies
from gpu_platform.nats.connection import JetStream
from gpu_platform.nats.listing import Listing
from gpu_platform.nats.records import Records


@dataclass(frozen=True)
class Store:
    records: Records
    bodies: Bodies
    listing: Listing


def open_store(js: JetStream, retention: timedelta) -> Store:
    return Store(Records(js, retention), Bodies(js, retention), Listing(js))
