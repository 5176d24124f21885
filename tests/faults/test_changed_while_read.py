"""A segment is truncated and filled again while it is read, to the same size, as by a follower after a leader change.

What is read of it then is half of one log and half of another: a state that never was. Every reader must notice.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import command
import pytest
from budgets import by_turns
from every_verb import VERBS, filled, written
from sentences import CHANGED_SINCE_LISTED, CHANGED_WHILE_READ

import snaprebuild
from formats.partition.file_names import FileKind
from snaprebuild import ReplayOptions
from snaprebuild.errors import ChangedFileError, RefusedError, SnaprebuildError, SnapshotRefusedError, UploadRefusedError
from snaprebuild.replay.segment_effect import entries_of
from snaprebuild.snapshots.engine import log_facts
from snaprebuild.snapshots.engine.segment_reader import ReadTask, read_segment, read_tasks
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.spark.range_reader import read_range
from snaprebuild.storage.local import regular_file
from snaprebuild.storage.local.regular_file import read_small_file
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store import parts_of

AS_OF_MS = 1795266500000
NO_SEGMENT_IS_READ = {
    *("scan", "fleet", "report", "inspect diff", "install", "follower fetch-path", "undo", "verify --written-by"),
    *("simulate isr", "simulate metadata-log"),
}

ONE_SEGMENT_IS_READ_TWICE = {"plan"}
"""The last one: the second time nothing changes it."""


def fill_again(path: str) -> None:
    """Writes bytes of the same count into the file. They are even the same ones, so that nothing but the file itself shows it."""
    data = Path(path).read_bytes()
    with open(path, "r+b") as file:
        file.truncate(0)
        file.write(data)


@contextmanager
def filled_again(monkeypatch: pytest.MonkeyPatch, change: Callable[[str], None] = fill_again) -> Iterator[list[str]]:
    """Every segment is changed once, between its first read and what follows. Gives the paths of those that were."""
    read_into, changed = SegmentFile.read_into, []

    def reads(self: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        count = read_into(self, position_bytes, buffer[: min(len(buffer), 100)])
        if self.name.endswith(".log") and self.name not in changed:
            changed.append(self.name)
            change(self.name)
        return count + read_into(self, position_bytes + count, buffer[count:])

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "read_into", reads)
        yield changed


@pytest.mark.parametrize("name", by_turns(sorted(set(VERBS) - NO_SEGMENT_IS_READ)))
def test_a_verb(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(VERBS[name], tmp_path)
    with filled_again(monkeypatch) as changed:
        ran = command.snaprebuild(*filled(VERBS[name].arguments, tmp_path))
    assert changed
    assert ran.exit_code in ((0,) if name in ONE_SEGMENT_IS_READ_TWICE else (1, 3)), ran
    assert not list((tmp_path / "out").rglob("*.snapshot")), "nothing was made of it"


@pytest.mark.parametrize("function", ["ensure_snapshot", "validate_snapshot", "prepare_upload"])
def test_a_function_of_the_library(function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(VERBS["tier upload"], tmp_path)
    partition = tmp_path / "zookeeper" / "payments-0"
    arguments: dict[str, tuple[Any, ...]] = {
        "ensure_snapshot": (partition, 116),
        "validate_snapshot": (partition, partition / f"{116:020d}.snapshot", 116),
        "prepare_upload": (partition / f"{56:020d}.log",),
    }
    options = ReplayOptions(as_of_ms=AS_OF_MS)
    assert getattr(snaprebuild, function)(*arguments[function], options=options) is not None
    with filled_again(monkeypatch), pytest.raises(RefusedError, match="changed") as caught:
        getattr(snaprebuild, function)(*arguments[function], options=options)
    if function == "prepare_upload":
        assert isinstance(caught.value, UploadRefusedError)
        assert caught.value.reason == "changed"
    else:
        assert isinstance(caught.value, SnapshotRefusedError)


def tasks_of(tmp_path: Path) -> list[ReadTask]:
    written(VERBS["verify"], tmp_path)
    (partition,) = open_source([str(tmp_path / "log" / "payments-0")]).partitions
    return read_tasks(partition.directory, range(len(partition.directory.segments)), check_crc=True)


def test_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    *rolled, active = tasks_of(tmp_path)
    for task in rolled:
        with filled_again(monkeypatch), pytest.raises(ChangedFileError, match=CHANGED_SINCE_LISTED):
            read_segment(task)
    with filled_again(monkeypatch) as changed:
        read_segment(active)  # once more, and then it is one log
    assert changed


def test_a_worker_that_reads_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for task in tasks_of(tmp_path):
        with filled_again(monkeypatch), pytest.raises(ChangedFileError):
            read_range(task, 0, 2)


@pytest.mark.full
def test_a_worker_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from snaprebuild.spark import header_rows, selected_files, source_options

    tasks_of(tmp_path)
    options = source_options.SourceOptions.of({"path": str(tmp_path / "log")}, header_rows.SCHEMA)
    kind, files_of = FileKind.LOG, selected_files.segments
    files = selected_files.list_files(options.paths, options.selection, kind, files_of).files
    assert files
    for file in files:
        with filled_again(monkeypatch), pytest.raises(ChangedFileError):
            list(header_rows.rows_of_segment(file, options))


def test_a_file_whose_mode_alone_changes_is_read_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup that makes hard links does so. The bytes are equal, but only another reading shows that."""
    task = tasks_of(tmp_path)[0]
    expected = read_segment(task)
    with filled_again(monkeypatch, lambda path: Path(path).chmod(0o640)) as changed:
        (found,) = read_segment(task)
    assert changed
    assert entries_of(found.effect).tobytes() == entries_of(expected[0].effect).tobytes()


# ------------------------------------------------------------------------------------------------------------ the active segment


def appended(path: str) -> None:
    with open(path, "ab") as file:
        file.write(bytes(50))


def changed_at(position: int) -> Callable[[str], None]:
    """One byte of what was read is another one, and the file is longer."""

    def change(path: str) -> None:
        appended(path)
        with open(path, "r+b") as file:
            file.seek(position)
            byte = file.read(1)[0]
            file.seek(position)
            file.write(bytes([byte ^ 1]))

    return change


def other_epochs(path: str) -> None:
    appended(path)
    checkpoint = Path(path).with_name("leader-epoch-checkpoint")
    checkpoint.with_suffix(".tmp").write_bytes(b"0\n2\n0 0\n7 100\n")
    checkpoint.with_suffix(".tmp").rename(checkpoint)


def test_the_active_segment_may_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks_of(tmp_path)[-1]
    (expected,) = read_segment(task)
    with filled_again(monkeypatch, appended) as changed:
        (found,) = read_segment(task)
    assert changed
    assert found.facts == expected.facts


@pytest.mark.parametrize("is_plain", [True, False])
def test_the_log_end_of_an_active_segment_that_grows_with_each_read(
    is_plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plain walk leaves a segment to the general one if a transaction ended in it, for example."""
    tasks_of(tmp_path)
    (partition,) = open_source([str(tmp_path / "log" / "payments-0")]).partitions
    expected, reads = log_facts.log_end_offset(partition.directory), []
    read_into = SegmentFile.read_into

    def grows(self: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        reads.append(position_bytes)
        count = read_into(self, position_bytes, buffer)
        appended(self.name)
        return count

    monkeypatch.setattr(SegmentFile, "read_into", grows)
    if not is_plain:
        monkeypatch.setattr(log_facts, "plain_log_end", lambda _: None)
    assert log_facts.log_end_offset(partition.directory) == expected
    assert reads


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(changed_at(17), id="its first batch is another one"),
        pytest.param(lambda path: os.truncate(path, os.stat(path).st_size - 1), id="it is shorter"),
        pytest.param(other_epochs, id="its log was truncated by a change of the leader"),
    ],
)
def test_the_active_segment_is_another_log(change: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks_of(tmp_path)[-1]
    read_into, reads = SegmentFile.read_into, []

    def changes_once_read(self: SegmentFile, position_bytes: int, buffer: memoryview) -> int:
        count = read_into(self, position_bytes, buffer)
        if not reads:
            change(self.name)
        reads.append(position_bytes)
        return count

    with monkeypatch.context() as patch:
        patch.setattr(SegmentFile, "read_into", changes_once_read)
        with pytest.raises(ChangedFileError):
            read_range(task, 0, 1)
    assert reads


def test_a_part_of_a_log_that_was_truncated_since_it_was_listed(tmp_path: Path) -> None:
    task = tasks_of(tmp_path)[-1]
    os.utime(Path(task.path).with_name("leader-epoch-checkpoint"), ns=(0, 0))
    appended(task.path)
    read_range(task, 0, 2)  # it grew
    other_epochs(task.path)
    with pytest.raises(RefusedError, match=CHANGED_SINCE_LISTED):
        read_range(task, 0, 2)


# ------------------------------------------------------------------------------------------------------------ other files


@pytest.mark.parametrize("times", [1, 2])
def test_a_small_file_is_read_once_more(times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_bytes(b"old" * 2000)
    all_bytes, left = regular_file._all_bytes, [b"new" * 2000, b"newer" * 2000][:times]

    def writes(*arguments: Any) -> bytes:
        data = all_bytes(*arguments)
        if left:
            path.write_bytes(left.pop(0))
        return data

    monkeypatch.setattr(regular_file, "_all_bytes", writes)
    if times == 1:
        assert read_small_file(str(path)) == b"new" * 2000
    else:
        with pytest.raises(ChangedFileError, match=CHANGED_WHILE_READ):
            read_small_file(str(path))


def test_what_is_sent_is_known_to_be_whole_before_its_end(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(bytes(100))
    with pytest.raises(SnaprebuildError), LOCAL.open_bytes(str(path), may_grow=True) as source:  # noqa: PT012
        parts = parts_of(source, 60)
        next(parts)
        fill_again(str(path))
        next(parts)
        with pytest.raises(ChangedFileError):
            next(parts)
