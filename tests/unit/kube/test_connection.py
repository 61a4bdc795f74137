"""Which cluster a process works for, and what it says when there is none."""

import json
from pathlib import Path

import pytest

from gpu_platform.kube.connection import NoConnectionError, open_client
from gpu_platform.kube.fencing import LastLookRequest


def write_kubeconfig(path: Path, server: str) -> Path:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    path.write_text(json.dumps(document))
    return path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


async def test_the_given_kubeconfig_comes_before_that_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = write_kubeconfig(tmp_path / "given", "https://given.invalid")
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "other", "https://other.invalid")))

    async with await open_client(given) as client:
        assert client.server == "https://given.invalid"
    async with await open_client() as client:
        assert client.server == "https://other.invalid"


async def test_every_request_is_looked_at_before_it_is_sent(tmp_path: Path) -> None:
    async with await open_client(write_kubeconfig(tmp_path / "given", "https://given.invalid")) as client:
        assert client._api.configuration.client_session_kwargs["request_class"] is LastLookRequest


@pytest.mark.parametrize("text", ["", "- no", "a: [", "clusters: 3", "3", "{}"])
async def test_a_file_of_another_kind_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)

    with pytest.raises(NoConnectionError) as caught:
        await open_client(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_missing_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NoConnectionError, match="cannot be used: "):
        await open_client(tmp_path / "missing")


async def test_no_cluster_at_all_is_one_sentence() -> None:
    with pytest.raises(NoConnectionError, match="name a kubeconfig in `kubeconfig` or KUBECONFIG"):
        await open_client()
