import secrets

import pytest

from gpu_platform.devcluster.hostnode.node import PodNetwork, shown_address


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
