"""Copies that brokers delete between the listing of the store and the reads: the answer is that of a store without them, with a note."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json
from manifests import FIXTURES

from snaprebuild.storage.local.store import LocalStore

FOLLOWER = FIXTURES / "follower-lost-state"
AIVEN = FIXTURES / "aiven-layout" / "zstd" / "store"
STORES = {"local": FOLLOWER / "remote", "aiven": AIVEN}
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
VERBS = ("tier inventory", "tier audit", "tier metadata")


def files_of(store: Path, copy: int) -> list[Path]:
    """The files of a copy, by its place in the order of start offsets."""
    names = sorted({path.name.partition(".")[0] for path in store.rglob("*") if path.is_file() and len(path.name) > 43})
    return [path for path in store.rglob("*") if path.name.partition(".")[0] == names[copy]]


def run(verb: str, layout: str, store: Path) -> Run:
    log_dir = ("--log-dir", FOLLOWER / "node1") if (verb, layout) == ("tier metadata", "local") else ()
    custom = ("--custom-metadata", "none") if verb == "tier metadata" else ()
    return in_json(verb, store, *log_dir, *custom, *(() if verb == "tier metadata" else AS_OF))


def answers(ran: Run) -> tuple[int, list[tuple[str, str]], list[Any]]:
    """Exit code, findings without the note, and the copies."""
    findings = sorted(
        (each["code"], each["message"]) for each in ran.document["findings"] if each["code"] != "tier-deleted-meanwhile"
    )
    copies = [copy for each in ran.document["partitions"] for copy in each["copies"]]
    return ran.exit_code, findings, copies


@pytest.mark.parametrize("copy", [0, -1])
@pytest.mark.parametrize("layout", STORES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_deletion_meanwhile_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, layout: str, copy: int
) -> None:
    store = tmp_path / "store"
    shutil.copytree(STORES[layout], store)
    files = files_of(store, copy)
    assert files
    listed = LocalStore.list_below

    def list_and_delete(self: LocalStore, location: str, *words: Any) -> Iterator[Any]:
        yield from listed(self, location, *words)
        for path in files if location == str(store) else ():
            path.unlink(missing_ok=True)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "list_below", list_and_delete)
        meanwhile = run(verb, layout, store)
    before = run(verb, layout, store)
    if verb == "tier inventory" and layout == "local":
        assert meanwhile.exit_code == 0  # it reads no object
        return
    assert answers(meanwhile) == answers(before)
    assert meanwhile.codes["tier-deleted-meanwhile"] == 1
    assert "tier-deleted-meanwhile" not in before.codes


@pytest.mark.parametrize("verb", VERBS)
def test_a_manifest_that_alone_is_gone_was_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Whether the copy is being deleted is unknown: that is neither health nor damage."""
    store = tmp_path / "store"
    shutil.copytree(AIVEN, store)
    (manifest,) = [path for path in files_of(store, 0) if path.suffix == ".rsm-manifest"]
    listed = LocalStore.list_below

    def list_and_delete(self: LocalStore, location: str, *words: Any) -> Iterator[Any]:
        yield from listed(self, location, *words)
        manifest.unlink(missing_ok=True)

    monkeypatch.setattr(LocalStore, "list_below", list_and_delete)
    ran = run(verb, "aiven", store)
    assert (ran.exit_code, ran.codes["storage-failed"]) == (5, 1)
    assert "is gone since the store was listed" in ran.messages("storage-failed")
