"""The Node and the addresses of its pods."""

import secrets

import pytest

from gpu_platform.devcluster.hostnode.node import (
    Machine,
    PodNetwork,
    build_lease,
    build_node,
    build_node_status,
    is_tainted,
    plan_labels,
    read_machine,
    shown_address,
)
from tests.unit.devcluster.hostnode.builders import NOW, seconds

MACHINE = Machine("linux", "amd64", "6.0", processors=2, memory_kibibytes=1024, gpus=8)


def test_a_new_node_is_tainted_so_that_only_those_who_ask_land_there() -> None:
    node = build_node(MACHINE)
    assert is_tainted(node)
    assert not is_tainted({"spec": {}})
    assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "Host-Process"


def test_only_missing_labels_are_written() -> None:
    node = build_node(MACHINE)
    assert plan_labels(node, MACHINE) == {}
    del node["metadata"]["labels"]["kubernetes.io/arch"]
    node["metadata"]["labels"]["nvidia.com/gpu.present"] = "false"
    assert plan_labels(node, MACHINE) == {"kubernetes.io/arch": "amd64", "nvidia.com/gpu.present": "true"}


def test_the_status_says_where_logs_are_and_what_there_is() -> None:
    status = build_node_status({}, MACHINE, 1234, ready=True, now=NOW)
    assert status["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 1234}}
    assert status["allocatable"] == {
        "cpu": "2",
        "memory": "1024Ki",
        "ephemeral-storage": "1Ti",
        "pods": "200",
        "nvidia.com/gpu": "8",
    }
    assert {condition["type"]: condition["status"] for condition in status["conditions"]} == {
        "MemoryPressure": "False",
        "DiskPressure": "False",
        "PIDPressure": "False",
        "Ready": "True",
    }


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    node = {"status": build_node_status({}, MACHINE, 1, ready=True, now=NOW)}
    later = NOW + seconds(60)

    def ready(*, value: bool) -> tuple[str, str]:
        condition = build_node_status(node, MACHINE, 1, ready=value, now=later)["conditions"][-1]
        return condition["lastTransitionTime"], condition["lastHeartbeatTime"]

    assert ready(value=True) == ("2030-01-02T03:04:05Z", "2030-01-02T03:05:05Z")
    assert ready(value=False) == ("2030-01-02T03:05:05Z", "2030-01-02T03:05:05Z")


def test_the_lease_belongs_to_the_node() -> None:
    lease = build_lease({"metadata": {"uid": "u"}}, NOW)
    assert lease["metadata"]["ownerReferences"][0]["uid"] == "u"
    assert lease["spec"]["renewTime"] == "2030-01-02T03:04:05.000000Z"


def test_this_machine_has_processors_and_memory() -> None:
    machine = read_machine(gpus=8)
    assert machine.processors >= 1
    assert machine.memory_kibibytes > 0


@pytest.fixture
def cluster() -> str:
    return secrets.token_hex(4)


def test_two_agents_on_one_machine_get_different_networks(cluster: str) -> None:
    first, second = PodNetwork.reserve(cluster), PodNetwork.reserve(cluster)
    assert first.number != second.number
    first.close()
    second.close()


def test_a_restarted_agent_gets_its_network_again(cluster: str) -> None:
    first = PodNetwork.reserve(cluster)
    first.close()
    again = PodNetwork.reserve(cluster)
    assert again.number == first.number
    again.close()


def test_every_pod_has_its_own_address_and_keeps_it(cluster: str) -> None:
    network = PodNetwork.reserve(cluster)
    addresses = [network.take(f"pod-{number}") for number in range(300)]
    assert addresses[0] == f"127.{network.number}.0.1"
    assert addresses[254] == f"127.{network.number}.1.1"
    assert len(set(addresses)) == 300
    assert network.take("pod-7") == addresses[7]
    network.close()


def test_an_address_that_was_given_back_is_not_reused_at_once(cluster: str) -> None:
    network = PodNetwork.reserve(cluster)
    first = network.take("a")
    network.give_back("a")
    assert network.take("b") != first
    network.close()


def test_a_wish_is_granted_if_it_is_free_and_of_this_network(cluster: str) -> None:
    network = PodNetwork.reserve(cluster)
    wish = f"127.{network.number}.9.9"
    assert network.take("a", wish) == wish
    assert network.take("b", wish) != wish
    assert network.take("c", "127.0.0.1") != "127.0.0.1"
    assert network.take("d", "nonsense") != "nonsense"
    network.close()


def test_a_pod_is_shown_in_the_simulated_range() -> None:
    assert shown_address("127.7.1.2") == "10.7.1.2"
