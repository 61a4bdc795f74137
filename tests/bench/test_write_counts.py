"""To whom a write in the audit log is counted: the table of `count_writes`."""

from gpu_platform.domain.json_text import Json
from tests.bench.write_counts import count_writes, describe

RECONCILER = "gpu-platform-reconciler/1"
INSTANCES, STOCK = "runtime-instance", "runtime-stock"


class Log:
    """Events in the order in which they are written down here."""

    def __init__(self) -> None:
        self.events: list[Json] = []

    def add(self, verb: str, what: str, namespace: str, name: str, agent: str = RECONCILER, answer: int = 200) -> None:
        resource, _, subresource = what.partition("/")
        self.events.append(
            {
                "requestReceivedTimestamp": f"2030-01-01T00:00:{len(self.events):02}.000000Z",
                "verb": verb,
                "userAgent": agent,
                "objectRef": {
                    "resource": resource,
                    "namespace": namespace,
                    "name": name,
                    **({"subresource": subresource} if subresource else {}),
                },
                "responseStatus": {"code": answer},
            }
        )

    def claim(self, stock: str) -> None:
        self.add("patch", "gpuunits", STOCK, stock, agent="gpu-platform")


def test_a_unit_is_charged_for_its_objects_its_status_and_its_events() -> None:
    log = Log()
    log.add("create", "networkpolicies", INSTANCES, "unit-a")
    log.add("create", "deployments", INSTANCES, "unit-a")
    log.add("patch", "gpuunits/status", INSTANCES, "a")
    log.add("create", "events", INSTANCES, "a.0123456789abcdef")
    assert count_writes(log.events, ["a"]).of_units.total() == 4
    assert count_writes(log.events, ["a"]).of_pools.total() == 0


def test_stock_is_the_pools_until_it_is_claimed_and_again_when_its_name_is_used_again() -> None:
    log = Log()
    log.add("create", "deployments", STOCK, "unit-pool-0")
    log.claim("pool-0")
    log.add("update", "deployments", STOCK, "unit-pool-0")
    log.add("delete", "gpuunits", STOCK, "pool-0")
    log.add("create", "gpuunits", STOCK, "pool-0")
    log.add("patch", "stockpools/status", STOCK, "pool")
    counts = count_writes(log.events, ["a"])
    assert counts.of_units == {("update", "deployments", 200): 1, ("delete", "gpuunits", 200): 1}
    assert counts.of_pools.total() == 3


def test_a_deletion_that_is_sent_twice_counts_twice() -> None:
    log = Log()
    log.claim("pool-0")
    log.add("delete", "gpuunits", STOCK, "pool-0")
    log.add("delete", "gpuunits", STOCK, "pool-0", answer=404)
    counts = count_writes(log.events, ["a"]).of_units
    assert counts == {("delete", "gpuunits", 200): 1, ("delete", "gpuunits", 404): 1}
    assert describe(counts, 1) == "delete gpuunits 1.00, delete gpuunits (404) 1.00"


def test_a_claim_that_was_refused_claims_nothing() -> None:
    log = Log()
    log.add("patch", "gpuunits", STOCK, "pool-0", agent="gpu-platform", answer=409)
    log.add("update", "deployments", STOCK, "unit-pool-0")
    assert count_writes(log.events, ["a"]).of_pools.total() == 1


def test_the_order_of_the_requests_decides_and_not_that_of_the_answers() -> None:
    log = Log()
    log.claim("pool-0")
    log.add("update", "deployments", STOCK, "unit-pool-0")
    assert count_writes(reversed(log.events), ["a"]).of_units.total() == 1


def test_what_others_write_is_nobodys() -> None:
    log = Log()
    log.add("update", "deployments/status", INSTANCES, "unit-a", agent="kube-controller-manager")
    counts = count_writes(log.events, ["a"])
    assert counts.of_units.total() + counts.of_pools.total() == 0
