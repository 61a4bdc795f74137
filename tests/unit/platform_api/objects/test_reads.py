"""Which objects a page holds, as the API server is asked."""

from gpu_platform.domain.storages import StoragePhase
from platform_api.objects.reads import build_phase_selectors


def test_without_a_phase_all_are_shown() -> None:
    assert build_phase_selectors(None, StoragePhase.PENDING) == []


def test_a_phase_is_asked_for_by_name() -> None:
    assert build_phase_selectors(StoragePhase.READY, StoragePhase.PENDING) == ["status.phase=Ready"]


def test_the_first_phase_is_also_that_of_what_nobody_has_looked_at_yet() -> None:
    selectors = build_phase_selectors(StoragePhase.PENDING, StoragePhase.PENDING)

    assert "status.phase!=Ready" in selectors
    assert len(selectors) == len(StoragePhase) - 1
    assert "status.phase!=Pending" not in selectors
