"""The snapshot at the first offset, as commands and the library show it: faults next to the healthy forms that look like them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import in_json
from log_dirs import batch, entries_in, make_log_dir, marker, snapshot_name, write_partition
from manifests import FIXTURES
from msgspec.structs import replace
from replays import put_snapshot

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild import Origin, ReplayOptions, SnapshotClass, SnapshotRefusedError, Validity, ensure_snapshot, validate_snapshot

T = 1_790_000_000_000
AS_OF_MS = T + 1_000
AT = ReplayOptions(as_of_ms=AS_OF_MS)
EXACT, FROM_LOG_START = SnapshotClass.EXACT, SnapshotClass.EXACT_FROM_LOG_START
UNPROVEN = SnapshotClass.UNPROVEN


def entry(producer: int, epoch: int, sequence: int, offset: int, timestamp: int, coordinator: int = -1) -> ProducerEntry:
    return ProducerEntry(producer, epoch, sequence, offset, 0 if offset > 9 else 4, timestamp, coordinator, -1)


IDEMPOTENT, MARKED = "idempotent", "marked"
"""Producer 5 writes sequence 5 of epoch 3 at offset 12; or a marker that closes nothing is there."""

RIGHT = {5: entry(5, 3, 4, 4, T), 7: entry(7, 0, 4, 9, T)}


@dataclass(frozen=True)
class Form:
    """A snapshot at the first offset.

    Attributes:
        change: of the right one.
        log: which log it begins.
        rule: that refutes it, the reason of the finding; None for a healthy form.
        classes: at 12, 13 and 15.
    """

    change: Callable[[dict[int, ProducerEntry]], dict[int, ProducerEntry]]
    log: str = IDEMPOTENT
    rule: str | None = None
    classes: tuple[SnapshotClass, SnapshotClass, SnapshotClass] = (FROM_LOG_START, FROM_LOG_START, FROM_LOG_START)


def with_5(**fields: int) -> Callable[[dict[int, ProducerEntry]], dict[int, ProducerEntry]]:
    return lambda base: base | {5: replace(base[5], **fields)}


FORMS = {
    # Producer 5 is silent up to 12, and no snapshot is left before its first batch: nothing confirms its batch and time.
    "right": Form(lambda base: base, classes=(FROM_LOG_START, EXACT, EXACT)),
    "older timestamp": Form(with_5(timestamp=T - 9), classes=(FROM_LOG_START, EXACT, EXACT)),
    "lost state": Form(lambda base: {7: base[7]}, classes=(FROM_LOG_START, EXACT, EXACT)),
    "a marker that closes nothing": Form(lambda base: base, MARKED, classes=(FROM_LOG_START, FROM_LOG_START, EXACT)),
    "lost state, and a marker": Form(lambda base: {7: base[7]}, MARKED, classes=(FROM_LOG_START, FROM_LOG_START, EXACT)),
    "an open transaction that nothing confirms": Form(
        with_5(current_txn_first_offset=2), MARKED, classes=(UNPROVEN, FROM_LOG_START, EXACT)
    ),
    "sequence too high": Form(with_5(last_sequence=9), rule="sequence"),
    "epoch too high": Form(with_5(epoch=4), rule="lower-epoch"),
    "epoch too low": Form(with_5(epoch=2), rule="sequence-of-new-epoch"),
    "coordinator epoch": Form(with_5(coordinator_epoch=2), rule="transaction"),
    "open transaction": Form(with_5(current_txn_first_offset=3), rule="transaction"),
    "coordinator epoch too high": Form(with_5(coordinator_epoch=2), MARKED, rule="coordinator-epoch"),
    "a producer that never was": Form(lambda base: base | {9: entry(9, 0, 0, 3, T)}, rule="later-snapshot"),
}


def write_log(root: Path, form: Form) -> Path:
    """Segments from 10, 12, 13 and 15 on; snapshots at 10, 15 and at the log end 16."""
    if form.log == IDEMPOTENT:
        at_12 = batch(12, producer_id=5, epoch=3, sequence=5, timestamp=T + 3)
    else:
        at_12 = marker(12, 5, epoch=3, commit=False, coordinator_epoch=1, timestamp=T + 3)
    segments = {
        10: batch(10, producer_id=7, sequence=5, timestamp=T + 1) + batch(11, producer_id=7, sequence=6, timestamp=T + 2),
        12: at_12,
        13: batch(13, producer_id=7, sequence=7, timestamp=T + 4) + batch(14, producer_id=5, epoch=4, sequence=0, timestamp=T + 5),
        15: batch(15, producer_id=7, sequence=8, timestamp=T + 6),
    }
    path = write_partition(root / "t-0", segments)
    for base_offset in segments:
        (path / f"{base_offset:020d}.index").touch()  # else a start removes snapshots, which is a finding of its own
    coordinator = 1 if form.log == MARKED else -1
    put_snapshot(path, 10, form.change(dict(RIGHT)).values())
    five = entry(5, 4, 0, 14, T + 5, coordinator)
    put_snapshot(path, 15, [five, entry(7, 0, 7, 13, T + 4)])
    put_snapshot(path, 16, [five, entry(7, 0, 8, 15, T + 6)])
    make_log_dir(root, log_start_offset_checkpoint="0\n1\nt 0 10\n")
    return path


@pytest.mark.parametrize("name", FORMS)
def test_forms_of_the_first_snapshot(name: str, tmp_path: Path) -> None:
    """``rebuild``, ``verify`` and the library come to one verdict; only what is contradicted is a finding."""
    form = FORMS[name]
    path = write_log(tmp_path / "logs", form)
    rebuilt = in_json("rebuild", tmp_path / "logs", "--out", tmp_path / "out", "--boundaries", "all", "--as-of", AS_OF_MS)
    found = {each["offset"]: SnapshotClass(each["class"]) for each in rebuilt.partition("t-0")["boundaries"]}
    assert tuple(found[at] for at in (12, 13, 15)) == form.classes
    options = ReplayOptions(as_of_ms=AS_OF_MS, allow_unproven=True)
    assert tuple(ensure_snapshot(path, at, options=options).snapshot_class for at in (12, 13, 15)) == form.classes
    verified = in_json("verify", tmp_path / "logs", "--as-of", AS_OF_MS)
    for run in (rebuilt, verified):
        contradicted = [each for each in run.document["findings"] if each["code"] == "base-contradicted"]
        assert [each["reason"] for each in contradicted] == ([] if form.rule is None else [form.rule])
        assert all(each["path"].endswith(snapshot_name(10)) for each in contradicted)
    assert (rebuilt.exit_code, verified.exit_code) == ((1, 1) if form.rule else (1 if UNPROVEN in form.classes else 0, 0))
    (first,) = [each for each in verified.partition("t-0")["snapshots"] if each["offset"] == 10]
    is_wrong = form.rule is not None and form.rule != "later-snapshot"
    assert first["comparison"]["status"] == ("stale" if is_wrong else "unverifiable")


def test_faults_and_healthy_forms_are_both_there() -> None:
    faults = [form for form in FORMS.values() if form.rule]
    assert (len(faults), len(FORMS) - len(faults)) == (7, 6)


def test_the_first_snapshot_of_a_compacted_topic_is_not_used(tmp_path: Path) -> None:
    """The cleaner removes batches that would confirm or contradict it; a plan expects no more."""
    logs = tmp_path / "logs"
    write_log(logs, FORMS["right"])
    moment = ("--as-of", AS_OF_MS, "--boundaries", "all")

    def classes(member: str, verb: str, *options: str) -> set[str]:
        return {each[member] for each in in_json(verb, logs, *options, *moment).partition("t-0")["boundaries"]}

    assert classes("expected_class", "plan") == {"EXACT"}
    assert classes("class", "rebuild", "--dry-run") == {"EXACT", "EXACT_FROM_LOG_START"}
    (logs / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 10\n")
    assert classes("expected_class", "plan") == {"EXACT_FROM_LOG_START"}
    assert classes("class", "rebuild", "--dry-run") == {"EXACT_FROM_LOG_START"}


# ------------------------------------------------------------------------------------------------------------------------ the library


def test_the_file_of_a_broker_whose_log_start_has_moved(tmp_path: Path) -> None:
    """2.7.2: its own snapshots have producers whose batches are gone. Kafka would upload them, and nothing contradicts them."""
    logs = Path(shutil.copytree(FIXTURES / "kafka27-moved-start" / "logs", tmp_path / "logs"))
    path = logs / "ret-0"
    newest_ms = 1_795_872_000_000
    options = ReplayOptions(as_of_ms=newest_ms)
    for offset in (61596, 61861, 61981):
        data = (path / snapshot_name(offset)).read_bytes()
        found = ensure_snapshot(path, offset, options=options)
        assert (found.origin, found.data, found.snapshot_class) == (Origin.ON_DISK, data, FROM_LOG_START)
        judged = validate_snapshot(path, data, offset, options=options)
        assert (judged.validity, judged.snapshot_class) == (Validity.UNPROVEN, FROM_LOG_START)


def test_no_option_returns_fewer_producers_than_a_wrong_file(tmp_path: Path) -> None:
    """A file that the log contradicts in one producer has others whose batches are gone: only a person may give those up."""
    path = Path(shutil.copytree(FIXTURES / "kafka27-moved-start" / "logs", tmp_path / "logs")) / "ret-0"
    offset = 61981
    entries = entries_in((path / snapshot_name(offset)).read_bytes())
    put_snapshot(path, offset, [replace(each, epoch=each.epoch + 7) for each in entries])
    options = ReplayOptions(as_of_ms=1_795_872_000_000, allow_unproven=True, allow_unsound=True)
    with pytest.raises(SnapshotRefusedError, match="has producers that the retained log does not have"):
        ensure_snapshot(path, offset, options=options)


# ------------------------------------------------------------------------------------------------------------------------ receipts


def test_what_this_program_wrote_is_no_evidence(tmp_path: Path) -> None:
    """A directory that was repaired with a wrong first snapshot: what was written then agrees with it."""
    form = FORMS["right"]
    path = write_log(tmp_path / "logs", form)
    ghost = entry(9, 0, 0, 3, T)
    put_snapshot(path, 10, [*RIGHT.values(), ghost])
    for offset in (15, 16):
        found = entries_in((path / snapshot_name(offset)).read_bytes())
        put_snapshot(path, offset, [*found, ghost])
    classes = {at: ensure_snapshot(path, at, options=AT).snapshot_class for at in (13, 15)}
    assert classes == {13: EXACT, 15: EXACT}, "a broker wrote them all, and what they agree on cannot be seen to be wrong"
    for offset in (15, 16):
        (path / snapshot_name(offset)).unlink()
    put_snapshot(path, 13, [*(entry(*each) for each in ((5, 3, 5, 12, T + 3), (7, 0, 6, 11, T + 2))), ghost])
    run = in_json("rebuild", tmp_path / "logs", "--as-of", AS_OF_MS)
    assert run.exit_code == 0, run.stderr
    assert (path / snapshot_name(15)).exists()
    for offset in (13, 12):  # at 12 the state had lacked producer 5, of whom too little was known
        (path / snapshot_name(offset)).unlink()
        found = ensure_snapshot(path, 15, options=AT)
        assert found.snapshot_class is FROM_LOG_START
        assert not any("contradicted" in reason for reason in found.reasons)


def test_a_copy_of_what_this_program_wrote_is_still_known(tmp_path: Path) -> None:
    """By its bytes and time, wherever the directory is."""
    path = write_log(tmp_path / "logs", FORMS["right"])
    (path / snapshot_name(13)).unlink(missing_ok=True)
    assert in_json("rebuild", tmp_path / "logs", "--as-of", AS_OF_MS, "--boundaries", "missing").exit_code == 0
    for offset in (15, 16):
        (path / snapshot_name(offset)).unlink()
    moved = Path(shutil.copytree(tmp_path / "logs", tmp_path / "moved")) / "t-0"
    assert (moved / snapshot_name(13)).exists()
    assert ensure_snapshot(moved, 15, options=AT).snapshot_class is FROM_LOG_START
