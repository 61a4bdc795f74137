"""Our reading of quantities against the API server's own: what it accepts, and the text that it returns."""

from collections.abc import Sequence

import pytest

from gpu_platform.domain.quantities import QuantityError, canonical_quantity
from gpu_platform.kube import KubeClient, KubeError
from gpu_platform.kube.paths import DEPLOYMENTS
from tests.support.quantity_texts import (
    ACCEPTED,
    NEGATIVE,
    READ_AS_ZERO_BY_KUBERNETES,
    REFUSED,
    TRIMMED_BY_KUBERNETES,
    WRITTEN_WRONGLY_BY_KUBERNETES,
    make_random_texts,
)

RANDOM_TEXTS = 400
SEED = 7
"""Any would do; a fixed one fails the same way twice."""


async def write_and_read(kube: KubeClient, texts: Sequence[str], resource: str = "cpu") -> list[str]:
    """The texts as the API server returns them, all in one request: a container's limit each."""
    containers = [
        {"name": f"c{index}", "image": "example/any", "resources": {"limits": {resource: text}}}
        for index, text in enumerate(texts)
    ]
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "quantities"},
        "spec": {
            "selector": {"matchLabels": {"app": "quantities"}},
            "template": {"metadata": {"labels": {"app": "quantities"}}, "spec": {"containers": containers}},
        },
    }
    answer = await kube.create(DEPLOYMENTS.collection("default"), deployment, {"dryRun": "All"})
    return [
        container["resources"]["limits"][resource] for container in answer["spec"]["template"]["spec"]["containers"]
    ]


def is_accepted_by_us(text: str) -> bool:
    try:
        return bool(canonical_quantity(text))
    except QuantityError:
        return False


async def is_accepted(kube: KubeClient, text: str) -> bool:
    try:
        return bool(await write_and_read(kube, [text]))
    except KubeError as error:
        if error.status != 400:
            raise
        return False


@pytest.mark.parametrize("resource", ["cpu", "memory"])
async def test_the_api_server_returns_the_text_of_the_table(kube: KubeClient, resource: str) -> None:
    returned = await write_and_read(kube, [text for text, _, _ in ACCEPTED], resource)

    assert dict(zip([text for text, _, _ in ACCEPTED], returned, strict=True)) == {
        text: written for text, _, written in ACCEPTED
    }


@pytest.mark.parametrize(("text", "written"), [(text, written) for text, _, written in NEGATIVE])
async def test_less_than_nothing_is_understood_and_then_refused(kube: KubeClient, text: str, written: str) -> None:
    with pytest.raises(KubeError, match=f'Invalid value: "{written}": must be greater than or equal to 0') as refusal:
        await write_and_read(kube, [text])
    assert refusal.value.status == 422


async def test_the_api_server_refuses_what_we_refuse(kube: KubeClient) -> None:
    assert [text for text in ("", *REFUSED) if await is_accepted(kube, text)] == []


async def test_the_api_server_and_we_agree_on_random_texts(kube: KubeClient) -> None:
    texts = make_random_texts(SEED, RANDOM_TEXTS)
    ours = [text for text in texts if is_accepted_by_us(text)]
    others = [text for text in texts if not is_accepted_by_us(text)]

    assert await write_and_read(kube, ours) == [canonical_quantity(text) for text in ours]
    assert [text for text in others if await is_accepted(kube, text)] == []
    assert len(ours) > RANDOM_TEXTS // 2
    assert len(others) > RANDOM_TEXTS // 20


async def test_where_we_are_stricter_the_api_server_guesses(kube: KubeClient) -> None:
    without_digits = await write_and_read(kube, READ_AS_ZERO_BY_KUBERNETES)
    with_spaces = await write_and_read(kube, TRIMMED_BY_KUBERNETES)
    too_large = await write_and_read(kube, [text for text, _ in WRITTEN_WRONGLY_BY_KUBERNETES])

    assert set(without_digits) == {"0"}
    assert with_spaces == [text.strip() for text in TRIMMED_BY_KUBERNETES]
    assert too_large == [written for _, written in WRITTEN_WRONGLY_BY_KUBERNETES]
