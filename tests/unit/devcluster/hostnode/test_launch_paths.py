import pytest

from gpu_platform.devcluster.hostnode.launch import PathRewriter

REWRITER = PathRewriter({"/mnt": "/r/0", "/mnt/x": "/r/1", "/etc/app/config.yaml": "/r/2/config.yaml"})


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("/mnt", "/r/0"),
        ("/mnt/", "/r/0/"),
        ("/mnt/file", "/r/0/file"),
        ("/mnt/x", "/r/1"),
        ("/mnt/x/file", "/r/1/file"),
        ("/mnt/xy", "/r/0/xy"),
        ("/mnt/x.bak", "/r/0/x.bak"),
        ("--flag=/mnt/x:ro", "--flag=/r/1:ro"),
        ("a:/mnt/x", "a:/r/1"),
        ("/mnt/x:/mnt/a:/usr/bin", "/r/1:/r/0/a:/usr/bin"),
        ("unix:///mnt/x/s.sock", "unix:///r/1/s.sock"),
        ("unix:/mnt/x/s.sock", "unix:/r/1/s.sock"),
        ("cat </mnt/x >/mnt/out; echo '/mnt/q' \"/mnt/x\"", "cat </r/1 >/r/0/out; echo '/r/0/q' \"/r/1\""),
        ("$(cat /mnt/x)", "$(cat /r/1)"),
        ("`cat /mnt/x`", "`cat /r/1`"),
        ("@/mnt/x", "@/r/1"),
        ("[/mnt/x,/mnt/y]", "[/r/1,/r/0/y]"),
        ("/etc/app/config.yaml", "/r/2/config.yaml"),
        ("print('/mnt/x\\n')", "print('/r/1\\n')"),
    ],
)
def test_a_path_into_a_mount_is_rewritten(text: str, want: str) -> None:
    assert REWRITER.rewrite(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "/mntx",
        "/mnt-2/file",
        "/mnt.old",
        "/srv/mnt/x",
        "./mnt/x",
        "~/mnt/x",
        "$HOME/mnt/x",
        "${BASE}/mnt/x",
        "$(pwd)/mnt/x",
        "*/mnt/x",
        "http://mnt/x",
        "http://host/mnt/x",
        "//mnt/x",
        "/mnt*",
        "/mnt$N",
        "/mnt%d",
        "/etc/app",
        "/etc/app/config.yaml.bak",
        "mnt/x",
        "",
    ],
)
def test_what_only_looks_like_a_mount_stays(text: str) -> None:
    assert REWRITER.rewrite(text) == text


def test_a_rewritten_path_is_not_rewritten_again() -> None:
    rewriter = PathRewriter({"/scratch": "/scratch/0", "/a": "/scratch/1"})
    assert rewriter.rewrite("/scratch/f /a/f") == "/scratch/0/f /scratch/1/f"


def test_without_mounts_every_text_stays() -> None:
    assert PathRewriter().rewrite("/mnt/x") == "/mnt/x"
