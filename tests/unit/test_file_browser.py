"""What lies in a storage was written by tenants: the file browser shows it, and leads nowhere else."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gpu_platform.file_browser import (
    LISTED_NAMES,
    FileBrowser,
    build_list,
    open_below,
    parse_target,
    read_content,
    resolve_below,
)
from tests.support.waiting import eventually


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A storage, beside something that is not in it."""
    (tmp_path / "secret").write_text("not yours")
    made = tmp_path / "data"
    (made / "deep" / "er").mkdir(parents=True)
    (made / "deep" / "a b").write_text("hello")
    return made


@pytest.fixture
def client(root: Path) -> Iterator[httpx.Client]:
    with FileBrowser("127.0.0.1", 0, root) as browser:
        serving = threading.Thread(target=browser.serve_forever)
        serving.start()
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{browser.server_address[1]}", timeout=10) as client:
                yield client
        finally:
            browser.shutdown()
            serving.join()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("/", ()),
        ("/?q=/x", ()),
        ("//a/./b%20c/", ("a", "b c")),
        ("/a%2Fb", ("a", "b")),
        ("/a/../b", None),
        ("/%2e%2e/%2e%2e/etc/passwd", None),
        ("/..%2f..%2fetc", None),
        ("/a%00", None),
        ("/%ff", (os.fsdecode(b"\xff"),)),
    ],
)
def test_a_way_never_leads_up(target: str, names: tuple[str, ...] | None) -> None:
    assert parse_target(target) == names


def test_a_file_is_sent_whole(client: httpx.Client) -> None:
    answer = client.get("/deep/a%20b")
    assert (answer.status_code, answer.text, answer.headers["content-length"]) == (200, "hello", "5")
    assert client.head("/deep/a%20b").headers["content-length"] == "5"
    assert client.get("/deep/a%20b/").status_code == 404


def test_a_directory_is_listed_whatever_lies_in_it(client: httpx.Client, root: Path) -> None:
    (root / "index.html").write_text("not this")
    (root / '<i>"&').touch()
    text = client.get("/").text
    assert "not this" not in text
    assert '<a href="./deep/">deep/</a>' in text
    assert '<a href="./%3Ci%3E%22%26">&lt;i&gt;&quot;&amp;</a>' in text
    assert '<a href="./a%20b">a b</a>' in client.get("/deep/").text


def test_a_long_list_ends_and_says_how_much_is_left_out(client: httpx.Client, root: Path) -> None:
    for number in range(LISTED_NAMES + 2):
        (root / "deep" / "er" / f"{number:06}").touch()
    text = client.get("/deep/er/").text
    assert text.count("<li>") == LISTED_NAMES
    assert f"{LISTED_NAMES - 1:06}</a>" in text
    assert f"{LISTED_NAMES:06}</a>" not in text
    assert "<p>and 2 more, which can be asked for by name</p>" in text
    assert client.get(f"/deep/er/{LISTED_NAMES + 1:06}").status_code == 200
    assert "more" not in client.get("/deep/").text


def test_a_list_looks_at_links_once_more_and_at_nothing_else(root: Path) -> None:
    """A look at each of 20,000 files takes a second. What was not looked at again is listed though it is gone."""
    (root / "gone").touch()
    (root / "gone-link").symlink_to("gone")
    opened = os.open(root, os.O_RDONLY)
    try:
        content = read_content(opened)
        (root / "gone").unlink()
        text = build_list(root, (), content).decode()
    finally:
        os.close(opened)
    assert '<a href="./gone">gone</a>' in text
    assert '<a href="./deep/">deep/</a>' in text
    assert "<li>gone-link</li>" in text


def test_a_directory_without_its_slash_leads_there_behind_any_prefix(client: httpx.Client) -> None:
    answer = client.get("/deep/er")
    assert (answer.status_code, answer.headers["location"]) == (301, "./er/")


def test_links_are_followed_within_the_storage_only(client: httpx.Client, root: Path) -> None:
    for name, target in {
        "in": "deep/a b",
        "in-directory": "deep",
        "out": "../secret",
        "out-directory": "..",
        "absolute": str(root.parent / "secret"),
        "loop": "loop",
        "dangling": "nothing",
    }.items():
        (root / name).symlink_to(target)
    assert client.get("/in").text == "hello"
    assert client.get("/in-directory/a%20b").text == "hello"
    for name in ("out", "out-directory/", "out-directory/secret", "absolute"):
        answer = client.get(f"/{name}")
        assert (answer.status_code, "not yours" in answer.text) == (403, False), name
    assert client.get("/loop").status_code in (403, 404)
    assert client.get("/dangling").status_code == 404
    listed = client.get("/").text
    assert '<a href="./in-directory/">' in listed
    assert "<li>out</li>" in listed
    assert "<li>out-directory</li>" in listed


def test_a_link_that_came_after_the_look_is_not_followed(root: Path) -> None:
    resolved = resolve_below(root, ("deep", "a b"))
    (root / "deep").rename(root / "moved")
    (root / "deep").symlink_to("moved")
    with pytest.raises(OSError, match="deep"):
        open_below(root, resolved)


def test_a_pipe_is_not_waited_for(client: httpx.Client, root: Path) -> None:
    os.mkfifo(root / "pipe")
    assert client.get("/pipe").status_code == 403
    assert "<li>pipe</li>" in client.get("/").text


def test_nothing_can_be_changed(client: httpx.Client, root: Path) -> None:
    for method in ("PUT", "POST", "PATCH", "DELETE", "MKCOL", "MOVE"):
        assert client.request(method, "/deep/a%20b", content=b"x").status_code == 501
    assert (root / "deep" / "a b").read_text() == "hello"


def test_a_page_of_a_tenant_runs_nothing_in_the_platforms_origin(client: httpx.Client, root: Path) -> None:
    (root / "page.html").write_text("<script>alert(1)</script>")
    for path in ("/page.html", "/", "/nothing"):
        assert client.get(path).headers["content-security-policy"] == "sandbox"


async def test_it_ends_when_it_is_told_to(root: Path) -> None:
    command = [sys.executable, "-m", "gpu_platform.file_browser", "127.0.0.1", "0", str(root)]
    with subprocess.Popen(command) as process:

        async def is_listening_to_signals() -> bool:
            return catches_sigterm(process.pid)

        await eventually(is_listening_to_signals)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def catches_sigterm(pid: int) -> bool:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigCgt")]
    return bool(int(line.split()[1], 16) & (1 << (signal.SIGTERM - 1)))
