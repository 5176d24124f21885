"""Why a snapshot is not written: failed, refused or skipped; permission problems are one line with the user to run as."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest
from in_process import snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES

from snaprebuild.snapshots.rebuild.task import denied_finding
from snaprebuild.storage.local.file_calls import FileCalls


def test_permission_problems_are_one_line_for_each_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    real = FileCalls.open

    def denied(calls: FileCalls, name: str, flags: int, *arguments: Any, **options: Any) -> int:
        if name.endswith(".snapshot.tmp"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(calls, name, flags, *arguments, **options)

    monkeypatch.setattr(FileCalls, "open", denied)
    ran = snaprebuild("rebuild", logs, "--jobs", 1, "--receipt", tmp_path / "receipt")
    assert ran.exit_code == 5
    assert "Nothing was written; 14 failed in 2 of 4 partitions." in ran.stdout
    owner = f"Run as its owner (uid {os.getuid()}) or as root"
    for line in (
        f"storage: {logs / 'mixed-0'}: permission denied: 12 snapshots not written. {owner} (storage-failed)",
        f"storage: {logs / 'logappend-0'}: permission denied: 2 snapshots not written. {owner} (storage-failed)",
    ):
        assert ran.stderr.splitlines().count(line) == 1
    assert ran.stderr.count("storage: ") == 2


def test_an_owner_who_may_not_write_is_not_sent_to_the_owner(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    message = denied_finding(str(tmp_path), 2).message
    tmp_path.chmod(0o755)
    assert message == (
        f"permission denied: 2 snapshots not written. Not even its owner (uid {os.getuid()}) may write (mode 0555): run chmod u+w"
    )


def test_unsound_snapshots_need_all_boundaries(tmp_path: Path) -> None:
    """Without its compaction known, a compacted log looks like one that lost batches."""
    source = FIXTURES / "damaged/logs"
    run = snaprebuild("rebuild", source, "--out", tmp_path / "some", "--replay-from", "log-start", "--keep-expired")
    every = snaprebuild(
        "rebuild", source, "--out", tmp_path / "all", "--replay-from", "log-start", "--keep-expired", "--boundaries", "all"
    )
    written = {path.name for path in (tmp_path / "some").rglob("*.snapshot")}
    more = {path.name for path in (tmp_path / "all").rglob("*.snapshot")} - written
    assert more
    assert "UNSOUND" not in run.text.partition("Next: ")[0]
    assert re.search("UNSOUND: do not use (it|them) in ", every.text.partition("Next: ")[0])
    assert (run.exit_code, every.exit_code) == (4, 4)
