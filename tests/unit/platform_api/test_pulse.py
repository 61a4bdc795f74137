"""How long Kubernetes has been away."""

from collections.abc import Mapping

from gpu_platform.adapters.kube import KubeClient, UnreachableError
from platform_api.pulse import Pulse


class Server(KubeClient):
    """There or not, as the test says."""

    def __init__(self) -> None:
        self.is_there = True

    async def text(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 10.0) -> str:
        if not self.is_there:
            raise UnreachableError(0, "Timeout", f"{path} {params}: no answer in {timeout} s")
        return "ok"


async def test_an_outage_counts_from_its_first_sign_and_ends_with_an_answer() -> None:
    server = Server()
    pulse = Pulse(server)
    await pulse.feel()
    assert pulse.lost_seconds == 0

    server.is_there = False
    await pulse.feel()
    first = pulse.lost_seconds
    await pulse.feel()
    assert 0 < first < pulse.lost_seconds

    server.is_there = True
    await pulse.feel()
    assert pulse.lost_seconds == 0
