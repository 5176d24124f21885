"""Writes into a log directory: what is looked at before each name, and what follows a failure. One small log, in this process."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import Run, snaprebuild
from every_verb import LONG_AGO
from log_dirs import of_zookeeper, snapshot_name, tree
from manifests import FIXTURES
from receipts import one_partition

from snaprebuild.errors import AlreadyExistsError, OutcomeUnknownError, RefusedError, WriteFailedError
from snaprebuild.snapshots.destination import link_writer
from snaprebuild.storage.local import store as local_store
from snaprebuild.storage.local.broker_lock import HeldLock
from snaprebuild.storage.local.hard_links import link_files
from snaprebuild.storage.local.store import LocalStore

WRONG = snapshot_name(2)
ASIDE = f"{WRONG}.set-aside.1"
STAGED = snapshot_name(1)


def rebuild(logs: Path, *options: object) -> Run:
    receipt = logs.parent / f"receipt-{len(os.listdir(logs.parent))}.jsonl"
    return snaprebuild("rebuild", logs, "--jobs", 1, "--receipt", receipt, *options)


def only_one_is_wrong(place: Path) -> Path:
    logs = one_partition(place)
    assert rebuild(logs).exit_code == 1
    return logs


def staged(place: Path) -> Path:
    logs = one_partition(place)
    stage(place)
    return logs


def stage(place: Path) -> Run:
    return snaprebuild("stage", place / "logs", "--jobs", 1, "--to", place / "staged")


def installed(place: Path) -> Run:
    return snaprebuild("install", "--plan", place / "staged" / "plan.jsonl", "--receipt", place / "receipt")


def test_the_lock_is_looked_at_before_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, seen = only_one_is_wrong(tmp_path), set()

    def verify(_lock: HeldLock) -> None:
        names = os.listdir(logs / "t-0")
        seen.add(tuple(name in names for name in (WRONG, ASIDE, f"{WRONG}.tmp")))

    monkeypatch.setattr(HeldLock, "verify", verify)
    assert rebuild(logs, "--set-aside").exit_code == 0
    before_it_is_set_aside, before_the_new_one_has_its_name = (True, False, False), (False, True, True)
    assert {before_it_is_set_aside, before_the_new_one_has_its_name} <= seen


def test_what_was_set_aside_returns_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = only_one_is_wrong(tmp_path)
    before = {path.name: path.read_bytes() for path in (logs / "t-0").iterdir()}

    def full(directory: str, name: str, *_: object, **__: object) -> None:
        assert ASIDE in os.listdir(directory)
        raise WriteFailedError("no space", path=f"{directory}/{name}", errno=errno.ENOSPC)

    monkeypatch.setattr(local_store, "create_file", full)
    assert rebuild(logs, "--set-aside").exit_code == 5
    assert {path.name: path.read_bytes() for path in (logs / "t-0").iterdir()} == before


def other_bytes(path: Path) -> None:
    path.write_bytes(b"other bytes")


def other_mode(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.parametrize("change", [other_bytes, other_mode])
def test_a_staged_file_that_was_changed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    """It is not installed, and another run stages it anew."""
    logs = staged(tmp_path)
    (file,) = (tmp_path / "staged").rglob(STAGED)
    data = file.read_bytes()
    change(file)
    assert installed(tmp_path).exit_code == 3
    assert not (logs / "t-0" / STAGED).exists()
    (tmp_path / "staged" / "plan.jsonl").unlink()
    assert "1 written, 1 equal" in stage(tmp_path).stdout
    assert file.read_bytes() == data


def test_the_directory_of_staged_files_is_durable_before_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync, seen = os.fsync, []

    def look(fd: int) -> None:
        if os.readlink(f"/proc/self/fd/{fd}") == str(tmp_path / "staged"):
            seen.append(sorted(os.listdir(fd)))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", look)
    staged(tmp_path)
    assert ["t-0.staged"] in seen


def test_without_the_lock_nothing_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = staged(tmp_path)
    before = tree(logs / "t-0")

    def lost(_lock: HeldLock) -> None:
        raise RefusedError("was removed")

    monkeypatch.setattr(HeldLock, "verify", lost)
    assert installed(tmp_path).exit_code == 3
    assert tree(logs / "t-0") == before


def test_a_directory_that_cannot_be_synced_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = staged(tmp_path)

    def fails(path: str) -> None:
        raise OutcomeUnknownError("a power failure may bring back what was removed", path=path)

    monkeypatch.setattr(link_writer, "sync_directory", fails)
    done = installed(tmp_path)
    assert done.exit_code == 5
    assert (logs / "t-0" / STAGED).exists()


def diseased_store(place: Path) -> Path:
    return Path(shutil.copytree(FIXTURES / "aiven-layout" / "diseased" / "store", place / "store"))


def repair(store: Path) -> Run:
    undo_file = store.parent / "undo.jsonl"
    return snaprebuild("tier", "repair", str(store), *LONG_AGO, "--allow-unverified", "--receipt", str(undo_file))


def test_objects_that_change_after_they_were_listed_are_not_repaired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = diseased_store(tmp_path)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}

    def touch(_self: LocalStore, _directory: str) -> None:
        for path in before:
            os.utime(path, ns=(1, 1))

    monkeypatch.setattr(LocalStore, "prepare_replacing", touch)
    assert repair(store).exit_code == 3
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_repair_is_on_the_device_in_its_undo_file_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    undo_file, store = tmp_path / "undo.jsonl", diseased_store(tmp_path)
    fsync, replace, synced, written = os.fsync, LocalStore.replace, [""], []

    def sync(fd: int) -> None:
        fsync(fd)
        if os.readlink(f"/proc/self/fd/{fd}") == str(undo_file):
            synced.append(undo_file.read_text())

    def write(self: LocalStore, location: str, *arguments: Any) -> None:
        written.append(location)
        assert f'"key":"{location.removeprefix(f"{store}/")}"' in synced[-1]
        replace(self, location, *arguments)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(LocalStore, "replace", write)
    repair(store)
    assert {location.rpartition(".")[2] for location in written} == {"indexes", "rsm-manifest"}


@pytest.mark.parametrize("kind", ["log", "indexes"])
def test_an_upload_does_not_complete_a_copy_with_other_bytes(tmp_path: Path, kind: str) -> None:
    logs = of_zookeeper(Path(shutil.copytree(FIXTURES / "damaged" / "healthy" / "log", tmp_path / "logs")))
    store = tmp_path / "store"
    store.mkdir()
    upload = ["tier", "upload", str(store), str(logs), *LONG_AGO, "--uploader", "me", "--i-am-the-leader"]
    assert snaprebuild(*upload).exit_code == 0
    for manifest in store.rglob("*.rsm-manifest"):
        manifest.unlink()
    other = min(store.rglob(f"*.{kind}"))
    other.write_bytes(b"other bytes")
    assert snaprebuild(*upload).exit_code == 3
    assert other.read_bytes() == b"other bytes"
    assert not other.with_suffix(".rsm-manifest").exists()


def test_links(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    for directory in (source, target):
        directory.mkdir()
    for name in ("free", "taken", "linked"):
        (source / name).write_text(name)
    (target / "taken").write_text("another")
    (target / "linked").hardlink_to(source / "linked")
    found = dict(link_files(str(source), str(target), ["free", "taken", "linked"]))
    assert (found["free"], found["linked"], type(found["taken"])) == (None, None, AlreadyExistsError)
    assert {path.name: path.read_text() for path in target.iterdir()} == {"free": "free", "taken": "another", "linked": "linked"}
    assert sorted(os.listdir(source)) == ["free", "linked", "taken"]
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(WriteFailedError):
        list(link_files(str(source), str(tmp_path / "link"), ["free"]))
