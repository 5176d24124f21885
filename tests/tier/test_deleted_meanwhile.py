"""Copies that brokers delete between the listing of the store and the reads: the answer is that of a store without them, with a note."""

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from manifests import FIXTURES

from snaprebuild.storage.local.store import LocalStore
from snaprebuild.tier.audit import audit
from snaprebuild.tier.ledger.turn import LedgerTurn

FOLLOWER = FIXTURES / "follower-lost-state"
AIVEN = FIXTURES / "aiven-layout" / "zstd" / "store"
STORES = {"local": FOLLOWER / "remote", "aiven": AIVEN}
AS_OF = ("--as-of", "2026-11-21T12:00:00Z")
LOWEST = {"local": 0, "aiven": 1}
"""Place of the lowest copy of the partition with the newest one. The store in Aiven's layout has a partition of one copy before it."""
VERBS = ("tier inventory", "tier audit", "tier metadata")


def files_of(store: Path, copy: int) -> list[Path]:
    """The files of a copy, by its place in the order of start offsets."""
    names = sorted({path.name.partition(".")[0] for path in store.rglob("*") if path.is_file() and len(path.name) > 43})
    return [path for path in store.rglob("*") if path.name.partition(".")[0] == names[copy]]


def count_of(store: Path) -> int:
    """How many copies the store has."""
    return len({path.name.partition(".")[0] for path in store.rglob("*.log")})


def arguments(verb: str, layout: str, store: Path) -> list[object]:
    log_dir = ("--log-dir", FOLLOWER / "node1") if (verb, layout) == ("tier metadata", "local") else ()
    custom = ("--custom-metadata", "none") if verb == "tier metadata" else ()
    return [store, *log_dir, *custom, *(() if verb == "tier metadata" else AS_OF)]


def run(verb: str, layout: str, store: Path) -> Run:
    return in_json(verb, *arguments(verb, layout, store))


def answers(ran: Run) -> tuple[int, list[tuple[str, str]], list[Any]]:
    """Exit code, findings without the note, and the copies."""
    findings = sorted(
        (each["code"], each["message"]) for each in ran.document["findings"] if each["code"] != "tier-deleted-meanwhile"
    )
    copies = [copy for each in ran.document["partitions"] for copy in each["copies"]]
    return ran.exit_code, findings, copies


def run_while_deleting(monkeypatch: pytest.MonkeyPatch, verb: str, layout: str, store: Path, files: list[Path]) -> Run:
    """Runs a verb; the files are deleted after the store was listed."""
    listed = LocalStore.list_below

    def list_and_delete(self: LocalStore, location: str, *words: Any) -> Iterator[Any]:
        yield from listed(self, location, *words)
        for path in files if location == str(store) else ():
            path.unlink(missing_ok=True)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "list_below", list_and_delete)
        return run(verb, layout, store)


def copied(tmp_path: Path, layout: str) -> Path:
    return Path(shutil.copytree(STORES[layout], tmp_path / "store"))


@pytest.mark.parametrize("layout", STORES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_deletion_meanwhile_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, layout: str) -> None:
    store = copied(tmp_path, layout)
    files = files_of(store, LOWEST[layout])
    assert files
    meanwhile = run_while_deleting(monkeypatch, verb, layout, store, files)
    before = run(verb, layout, store)
    if verb == "tier inventory" and layout == "local":
        assert meanwhile.exit_code == 0  # it reads no object
        return
    assert answers(meanwhile) == answers(before)
    assert meanwhile.codes["tier-deleted-meanwhile"] == 1
    assert "tier-deleted-meanwhile" not in before.codes


READ_OBJECTS = [(verb, layout) for verb in VERBS for layout in STORES if (verb, layout) != ("tier inventory", "local")]


LOSSES = [
    *((verb, layout, lost) for verb, layout in READ_OBJECTS for lost in ((-1,), range(count_of(STORES[layout])))),
    *((verb, layout, (1 - LOWEST[layout],)) for verb, layout in READ_OBJECTS),
]
"""The newest copy, all, and one in the middle or the only one of a partition."""


@pytest.mark.parametrize(("verb", "layout", "lost"), LOSSES)
def test_a_loss_that_retention_does_not_cause_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, layout: str, lost: Sequence[int]
) -> None:
    """Retention deletes the lowest copies, and not the last one."""
    store = copied(tmp_path, layout)
    files = [path for place in lost for path in files_of(store, place)]
    ran = run_while_deleting(monkeypatch, verb, layout, store, files)
    # Without a metadata log an audit opens the segments of this layout for their ends.
    is_end_unknown = (verb, layout) == ("tier audit", "local")
    is_vanished = is_end_unknown and len(lost) == count_of(STORES[layout])
    code, exit_code = ("tier-not-audited", 1) if is_end_unknown else ("storage-failed", 5)
    assert ran.exit_code == (5 if is_vanished else exit_code)
    assert code in ran.codes
    assert "tier-deleted-meanwhile" not in ran.codes


@pytest.mark.parametrize("layout", STORES)
def test_retention_beside_a_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: str) -> None:
    """The lowest copy is left out, and another one is a fault."""
    store = copied(tmp_path, layout)
    files = [*files_of(store, LOWEST[layout]), *files_of(store, 2 if layout == "local" else 0)]
    ran = run_while_deleting(monkeypatch, "tier audit", layout, store, files)
    assert ran.exit_code != 0
    assert "1 copy was deleted" in ran.messages("tier-deleted-meanwhile")


@pytest.mark.parametrize(
    ("level", "lost", "exit_code"),
    [
        ("full", (0, 1), 0),
        ("records", (0, 1), 0),
        ("structure", (0, 1), 0),
        *((level, lost, 5) for level in ("full", "structure", "records") for lost in ((-1,), range(14))),
    ],
)
def test_finished_copies_that_go_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, lost: Sequence[int], exit_code: int
) -> None:
    """The metadata log has all copies as finished."""
    store = copied(tmp_path, "local")
    files = [path for place in lost for path in files_of(store, place)]
    reads = audit._read_without_replay

    def delete_and_read(*words: Any) -> None:
        for path in files:
            path.unlink(missing_ok=True)
        reads(*words)

    monkeypatch.setattr(audit, "_read_without_replay", delete_and_read)
    ran = in_json("tier audit", store, "--metadata-log", FOLLOWER / "node1", "--level", level, "--jobs", 1, *AS_OF)
    assert ran.exit_code == exit_code
    assert ran.codes.get("tier-deleted-meanwhile", 0) == (exit_code == 0)


@pytest.mark.parametrize("level", ["structure", "reachable", "full", "records"])
@pytest.mark.parametrize("second", ["_replay_present", "check_records"])
def test_copies_that_go_at_two_moments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: str, level: str) -> None:
    """A copy that was left out before the ends of segments were read is not read, and not left out, a second time."""
    store = copied(tmp_path, "local")
    with monkeypatch.context() as patched:
        for place, moment in enumerate(("_read_without_replay", second)):
            files, step = files_of(store, place), getattr(audit, moment)

            def delete_and_go_on(*words: Any, files: list[Path] = files, step: Callable[..., Any] = step) -> Any:
                for path in files:
                    path.unlink(missing_ok=True)
                return step(*words)

            patched.setattr(audit, moment, delete_and_go_on)
        meanwhile = in_json("tier audit", store, "--level", level, "--jobs", 1, *AS_OF)
    assert meanwhile.codes["tier-deleted-meanwhile"] == 1
    afterwards = in_json("tier audit", store, "--level", level, "--jobs", 1, *AS_OF)
    assert answers(meanwhile)[:2] == answers(afterwards)[:2]


@pytest.mark.parametrize("level", ["structure", "reachable", "full", "records"])
def test_an_object_of_several_indexes_that_goes_before_the_replay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    """A copy in Aiven's layout, whose manifest was read."""
    store = copied(tmp_path, "aiven")
    files = files_of(store, LOWEST["aiven"])
    reads = audit._read_without_replay

    def delete_and_read(*words: Any) -> None:
        for path in files:
            path.unlink(missing_ok=True)
        reads(*words)

    with monkeypatch.context() as patched:
        patched.setattr(audit, "_read_without_replay", delete_and_read)
        meanwhile = in_json("tier audit", store, "--level", level, "--jobs", 1, *AS_OF)
    before = in_json("tier audit", store, "--level", level, "--jobs", 1, *AS_OF)
    assert meanwhile.codes["tier-deleted-meanwhile"] == 1
    assert answers(meanwhile) == answers(before)


@pytest.mark.parametrize("layout", STORES)
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("moment", ["plan", "read", "judge"])
def test_a_copy_that_goes_during_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, rounds: int, layout: str
) -> None:
    """Before its segment is read, or after that, when its snapshot is still to be read. A first turn may have proven it."""
    store = copied(tmp_path, layout)
    files = files_of(store, LOWEST[layout])
    words = ("--metadata-log", FOLLOWER / "node1") if layout == "local" else ()
    turn = ("tier audit", store, *words, "--jobs", 1, *AS_OF, "--ledger", tmp_path / "ledger")
    for _ in range(rounds - 1):
        in_json(*turn)
    step = getattr(LedgerTurn, moment)

    def delete_and_go_on(self: LedgerTurn, *given: Any) -> Any:
        for path in files:
            path.unlink(missing_ok=True)
        return step(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(LedgerTurn, moment, delete_and_go_on)
        ran = in_json(*turn)
    verdicts = [copy["verdict"] for each in ran.document["partitions"] for copy in each["copies"]]
    assert ran.codes["tier-deleted-meanwhile"] == 1
    assert len(verdicts) == count_of(STORES[layout]) - 1
    assert "not-read" not in verdicts
    assert not {"storage-failed", "tier-newly-unproven", "tier-not-audited"} & set(ran.codes)


def test_an_object_that_was_absent_once_is_read_by_the_next_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store lists an object and does not have it for a moment, as one that is only in time consistent."""
    store = copied(tmp_path, "local")
    ledger = tmp_path / "ledger"
    turn = ("tier audit", store, "--metadata-log", FOLLOWER / "node1", "--jobs", 1, *AS_OF, "--ledger", ledger)
    (snapshot,) = [path for path in files_of(store, 5) if path.suffix == ".snapshot"]
    reads = LocalStore.read_small

    def absent(self: LocalStore, location: str, bytes_max: int) -> bytes | None:
        return None if location == str(snapshot) else reads(self, location, bytes_max)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "read_small", absent)
        assert in_json(*turn).exit_code == 1
    assert in_json(*turn).exit_code == 0


@pytest.mark.parametrize(("verb", "layout"), READ_OBJECTS)
def test_copies_that_all_go_need_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, layout: str) -> None:
    """A deleted topic has this effect: one finding says so, and there is nothing to correct."""
    store = copied(tmp_path, layout)
    files = [path for place in range(count_of(store)) for path in files_of(store, place)]
    ran = run_while_deleting(monkeypatch, verb, layout, store, files)
    partitions = len({path.parent for path in files})
    assert (ran.exit_code, ran.codes["storage-failed"]) == (5, partitions)
    assert "gone since the store was listed: the topic may have been deleted" in ran.messages("storage-failed")
    shutil.copytree(STORES[layout], store, dirs_exist_ok=True)
    monkeypatch.setattr(sys.modules[__name__], "in_json", snaprebuild)
    text = run_while_deleting(monkeypatch, verb, layout, store, files)
    assert "could not be read: deleted or changed meanwhile." in text.text
    assert "Next: run this command again.\n" in text.stdout


def test_retention_while_records_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _decoded_while_deleting(tmp_path, monkeypatch, (0, 1)) == (0, 1, 0)


def test_a_loss_while_records_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _decoded_while_deleting(tmp_path, monkeypatch, (-1,)) == (5, 0, 1)


def _decoded_while_deleting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: tuple[int, ...]) -> tuple[int, int, int]:
    """Exit code, notes and storage failures where copies are deleted between the replay and the decode."""
    store = copied(tmp_path, "local")
    files = [path for place in lost for path in files_of(store, place)]
    decodes = audit.check_records

    def delete_and_decode(*words: Any) -> None:
        for path in files:
            path.unlink()
        decodes(*words)

    monkeypatch.setattr(audit, "check_records", delete_and_decode)
    words = ("--metadata-log", FOLLOWER / "node1", "--level", "records", "--jobs", 1)
    ran = in_json("tier audit", store, *words, *AS_OF)
    return ran.exit_code, ran.codes.get("tier-deleted-meanwhile", 0), ran.codes.get("storage-failed", 0)


@pytest.mark.parametrize("verb", VERBS)
def test_a_manifest_that_alone_is_gone_was_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """Whether the copy is being deleted is unknown: that is neither health nor damage."""
    store = tmp_path / "store"
    shutil.copytree(AIVEN, store)
    (manifest,) = [path for path in files_of(store, 0) if path.suffix == ".rsm-manifest"]
    data = manifest.read_bytes()
    listed = LocalStore.list_below

    def list_and_delete(self: LocalStore, location: str, *words: Any) -> Iterator[Any]:
        yield from listed(self, location, *words)
        manifest.unlink(missing_ok=True)

    monkeypatch.setattr(LocalStore, "list_below", list_and_delete)
    ran = run(verb, "aiven", store)
    assert (ran.exit_code, ran.codes["storage-failed"]) == (5, 1)
    assert "is gone since the store was listed" in ran.messages("storage-failed")
    manifest.write_bytes(data)
    text = snaprebuild(*verb.split(), *arguments(verb, "aiven", store)).text
    assert text.startswith("INCOMPLETE: 1 "), text
    assert "1 path could not be read: deleted or changed meanwhile." in text.partition(" Next: ")[0]
    assert " Next: run this command again. " in text, "nobody has anything to correct"
