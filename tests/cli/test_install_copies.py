"""``install`` where a link would carry a wrong label, project or access list, or is impossible."""

import errno
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from log_dirs import changes, copy_of, snapshot_name, tree
from staged_logs import MIXED, installed_here, staged

from snaprebuild.snapshots.rebuild.rebuild_result import RebuildResult
from snaprebuild.snapshots.staging import staged_check


def circle(tmp_path: Path, staged_files: Path, logs: Path) -> None:
    """Every snapshot is installed as a copy, and the receipt finds it again."""
    kept = snaprebuild("verify", "--written-by", tmp_path / "receipt.jsonl", "--output", "json")
    assert (kept.exit_code, kept.totals) == (0, {"kept": len(MIXED)})
    for offset in MIXED:
        copy, original = logs / "mixed-0" / snapshot_name(offset), staged_files / snapshot_name(offset)
        assert copy.read_bytes() == original.read_bytes()
        assert not copy.samefile(original)
    assert in_json("undo", tmp_path / "receipt.jsonl").totals == {"removed": len(MIXED)}


def ready(tmp_path: Path, prepare: Callable[[Path], None] = lambda _logs: None) -> tuple[Path, Path, Callable[[], RebuildResult]]:
    """Log directory, directory of the staged files, and what installs them in this process."""
    logs = copy_of("kafka27-mixed", tmp_path)
    prepare(logs)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    plan = tmp_path / "staged" / "plan.jsonl"
    return logs, plan.parent / "mixed-0.staged", lambda: installed_here(plan, tmp_path / "receipt.jsonl")


def labels(monkeypatch: pytest.MonkeyPatch, label_of: Callable[[str], str]) -> None:
    """Gives files SELinux labels: only a privileged process of a machine with SELinux can set them."""

    def getxattr(path: str, name: str, **_more: bool) -> bytes:
        assert name == "security.selinux"
        return label_of(path).encode() + b"\0"

    monkeypatch.setattr(os, "listxattr", lambda _path, **_more: ["security.capability", "security.selinux"])
    monkeypatch.setattr(os, "getxattr", getxattr)


World = Callable[[pytest.MonkeyPatch, Path, Path], None]
"""Changes what the system says of a log directory and of the directory of the staged files."""


def no_link(number: int) -> World:
    """EXDEV: also between directories of different quota projects."""

    def change(patched: pytest.MonkeyPatch, _logs: Path, _files: Path) -> None:
        link = os.link

        def failing(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int, **more: bool) -> None:
            if src_dir_fd != dst_dir_fd:
                raise OSError(number, os.strerror(number), source, None, target)
            link(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd, **more)

        patched.setattr(os, "link", failing)

    return change


def another_label(patched: pytest.MonkeyPatch, logs: Path, _files: Path) -> None:
    def label_of(path: str) -> str:
        user = "unconfined_u" if path.endswith(".tmp") else "system_u"
        return f"{user}:object_r:{'kafka_data_t' if path.startswith(str(logs)) else 'user_tmp_t'}:s0"

    labels(patched, label_of)


def another_project(patched: pytest.MonkeyPatch, _logs: Path, files: Path) -> None:
    patched.setattr(staged_check, "project_of", lambda path: 7 if path.startswith(str(files)) else 0)


@pytest.mark.parametrize(
    ("world", "another"),
    [
        (no_link(errno.EXDEV), None),
        (no_link(errno.EPERM), None),
        (another_label, "security label"),
        (another_project, "quota project"),
    ],
    ids=["EXDEV", "EPERM", "label", "project"],
)
def test_a_copy_is_installed_where_a_link_is_impossible_or_wrong(
    world: World, another: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, files, run = ready(tmp_path)
    with monkeypatch.context() as patched:
        world(patched, logs, files)
        done = run()
    assert (done.exit_code, {made.action for each in done.partitions for made in each.boundaries}) == (0, {"written"})
    said = f"12 staged files of another {another} than the segments: a copy is installed, not a link"
    reported = [(each.code, each.message) for each in done.findings]
    assert reported == ([] if another is None else [("installed-as-copy", said)])
    circle(tmp_path, files, logs)


def test_the_user_of_a_security_label_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, files, run = ready(tmp_path)
    labels(monkeypatch, lambda path: f"{'system_u' if path.startswith(str(logs)) else 'unconfined_u'}:object_r:kafka_data_t:s0")
    done = run()
    assert (done.exit_code, done.findings) == (0, ())
    assert (logs / "mixed-0" / snapshot_name(MIXED[0])).samefile(files / snapshot_name(MIXED[0]))


def test_what_neither_a_link_nor_a_copy_would_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, files, run = ready(tmp_path)
    labels(monkeypatch, lambda path: f"u:object_r:{'kafka_data_t' if path.endswith('.log') else 'other_t'}:s0")
    before = tree(logs)
    done = run()
    refused = [each for each in done.findings if each.severity]
    assert (done.exit_code, {each.code for each in refused}, len(refused)) == (3, {"refused"}, len(MIXED))
    command = f"chcon --reference={logs}/mixed-0/{583 - 583:020d}.log {files}/{snapshot_name(MIXED[0])}"
    assert command in refused[0].message
    assert changes(before, tree(logs))[0] <= {".lock"}


def test_a_copy_inherits_the_default_access_control_list_of_its_directory(tmp_path: Path) -> None:
    rights = ((1, 6, -1), (2, 4, 1234), (4, 4, -1), (0x10, 4, -1), (0x20, 4, -1))  # acl(5): user 1234 may read
    default = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *each) for each in rights)

    def give(logs: Path) -> None:
        os.setxattr(logs / "mixed-0", "system.posix_acl_default", default)
        for path in (logs / "mixed-0").glob("*.log"):  # as if they had been made after it
            os.setxattr(path, "system.posix_acl_access", default)

    logs, files, run = ready(tmp_path, give)
    done = run()
    assert (done.exit_code, {each.code for each in done.findings}) == (0, {"installed-as-copy"})
    for offset in MIXED:
        assert os.getxattr(logs / "mixed-0" / snapshot_name(offset), "system.posix_acl_access") == default
        assert "system.posix_acl_access" not in os.listxattr(files / snapshot_name(offset))
    circle(tmp_path, files, logs)
