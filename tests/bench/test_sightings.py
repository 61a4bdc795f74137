"""The moment at which a watch shows something is kept for whoever asked before."""

from tests.bench.sightings import Sightings, is_named


def item(name: str, phase: str) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "default"}, "phase": phase}


async def test_the_first_match_counts() -> None:
    sightings = Sightings()
    moment = sightings.expect(lambda each: is_named(each, "a", "default") and each["phase"] == "Ready")
    sightings.see(item("b", "Ready"))
    sightings.see(item("a", "Pending"))
    assert not moment.done()
    sightings.see(item("a", "Ready"))
    first = await moment
    sightings.see(item("a", "Ready"))
    assert moment.result() == first


async def test_several_may_wait_for_the_same() -> None:
    sightings = Sightings()
    moments = [sightings.expect(lambda _: True), sightings.expect(lambda _: True)]
    sightings.see(item("a", "Ready"))
    assert all(moment.done() for moment in moments)
