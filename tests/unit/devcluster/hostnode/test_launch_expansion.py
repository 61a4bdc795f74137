import pytest

from gpu_platform.devcluster.hostnode.launch import expand


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("$(A)", "one"),
        ("x$(A)y$(B)z", "xoneytwoz"),
        ("$(MISSING)", "$(MISSING)"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$one"),
        ("$$$$", "$$"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("$(A $$", "$(A $"),
        ("$()", "$()"),
        ("$($(A))", "$($(A))"),
        ("$(LOOP)", "$(A)"),
    ],
)
def test_references_are_expanded_as_kubernetes_does_it(text: str, want: str) -> None:
    assert expand(text, {"A": "one", "B": "two", "LOOP": "$(A)"}) == want
