"""What decides the bytes of a part is in its key, and nothing from the user's shell decides them."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts.recipe import (
    PARTS,
    Binary,
    GoModule,
    Part,
    Script,
    build_environment,
    clean_environment,
    read_recipe,
)

GO = "go1.26.8"
GO_MOD = "module example.invalid/tools/hello\n\ngo 1.26.0\n\nrequire example.invalid/hello v1.36.3\n"


def make_part(folder: Path, *, stamps: tuple[tuple[str, str], ...] = ()) -> Part:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "go.mod").write_text(GO_MOD)
    (folder / "go.sum").write_text("example.invalid/hello v1.36.3 h1:abc=\n")
    return Part("hello", (GoModule(folder, (Binary("hello", "example.invalid/hello"),), stamps=stamps),))


@pytest.fixture
def part(tmp_path: Path) -> Part:
    return make_part(tmp_path / "hello")


def test_the_key_stays_when_nothing_changes_even_in_another_checkout(part: Part, tmp_path: Path) -> None:
    elsewhere = make_part(tmp_path / "other-checkout" / "hello")

    assert read_recipe(elsewhere).entry_name(GO) == read_recipe(part).entry_name(GO)


@pytest.mark.parametrize("pins", ["go.mod", "go.sum"])
def test_the_key_changes_with_the_pins(part: Part, pins: str) -> None:
    before = read_recipe(part).entry_name(GO)

    with (part.modules[0].folder / pins).open("a") as file:
        file.write("\n")

    assert read_recipe(part).entry_name(GO) != before


def with_stamp(part: Part) -> Part:
    return replace(part, modules=(replace(part.modules[0], stamps=(("main.version", "{version}"),)),))


def with_script(part: Part) -> Part:
    script = Script("example.invalid/hello", "scripts/run")
    return replace(part, modules=(replace(part.modules[0], scripts=(script,)),))


@pytest.mark.parametrize("change", [with_stamp, with_script])
def test_the_key_changes_with_what_is_built(part: Part, change: Callable[[Part], Part]) -> None:
    assert read_recipe(change(part)).entry_name(GO) != read_recipe(part).entry_name(GO)


def test_the_key_changes_with_the_go_release(part: Part) -> None:
    recipe = read_recipe(part)

    assert recipe.entry_name("go1.26.9") != recipe.entry_name(GO)


def test_the_key_changes_with_the_platform(part: Part) -> None:
    recipe = read_recipe(part)
    on_arm = replace(recipe, environment=build_environment("linux", "aarch64"))
    on_intel = replace(recipe, environment=build_environment("linux", "x86_64"))

    assert on_arm.entry_name(GO) != on_intel.entry_name(GO)


def test_an_entry_is_named_after_part_and_version(part: Part) -> None:
    assert re.fullmatch(r"hello-1\.36\.3-[0-9a-f]{16}", read_recipe(part).entry_name(GO))


def test_stamps_carry_the_version_of_go_mod(tmp_path: Path) -> None:
    part = make_part(tmp_path, stamps=(("a.full", "{version}"), ("a.short", "{major}.{minor}")))

    (build,) = read_recipe(part).builds

    assert "-ldflags=-s -w -X a.full=v1.36.3 -X a.short=1.36" in build.arguments


def test_go_variables_of_the_shell_do_not_change_what_is_built() -> None:
    shell = {"GOFLAGS": "-mod=mod", "GOARCH": "wasm", "GOROOT": "/old", "CGO_CFLAGS": "-O0", "GOEXPERIMENT": "x"}

    cleaned = clean_environment(shell, build_environment("linux", "x86_64"))

    assert cleaned == build_environment("linux", "x86_64")


def test_the_shell_still_says_where_modules_come_from_and_where_go_keeps_them() -> None:
    shell = {"GOPROXY": "off", "GOMODCACHE": "/mod", "HTTPS_PROXY": "http://p", "PATH": "/bin"}

    assert clean_environment(shell, {}) == shell


def test_a_missing_pin_file_asks_for_a_checkout(part: Part) -> None:
    (part.modules[0].folder / "go.sum").unlink()

    with pytest.raises(DevClusterError, match=r"go\.sum is missing: .* checkout"):
        read_recipe(part)


def test_a_package_that_go_mod_does_not_require_is_refused(part: Part) -> None:
    (part.modules[0].folder / "go.mod").write_text("module example.invalid/tools/hello\n\ngo 1.26.0\n")

    with pytest.raises(DevClusterError, match=r"requires no module that holds example\.invalid/hello"):
        read_recipe(part)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_each_real_part_is_built_from_exactly_the_tools_of_its_go_mod(part: Part) -> None:
    for module in part.modules:
        go_mod = (module.folder / "go.mod").read_text()
        listed = re.findall(r"^tool ([^\s(]+)$", go_mod, re.MULTILINE)
        for block in re.findall(r"^tool \((.*?)^\)", go_mod, re.MULTILINE | re.DOTALL):
            listed += block.split()

        assert sorted(binary.package for binary in module.binaries) == sorted(listed)


def test_the_real_parts_have_the_versions_of_their_pins() -> None:
    versions = {name: version for part in PARTS for name, version in read_recipe(part).versions.items()}

    assert versions.keys() == {
        "pulumi",
        "pulumi-language-python",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "etcd",
        "kubectl",
        "kwok",
    }
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", version) for version in versions.values())


def test_the_real_parts_need_go_1_26() -> None:
    assert max(read_recipe(part).minimum_go for part in PARTS) == (1, 26, 0)
