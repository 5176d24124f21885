"""Files of an export get their names when they are whole; without its result the file of a task gets none."""

import errno
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from manifests import FIXTURES

from snaprebuild.consume import record_export
from snaprebuild.consume.record_export import (
    ExportedPartition,
    export_partition,
    export_records,
    exported_columns,
    make_export_directory,
    publish,
    remove_unnamed_files,
)
from snaprebuild.consume.record_query import DamageMode, RecordIsolation, RecordQuery
from snaprebuild.consume.record_source import RecordSource, open_record_source
from snaprebuild.errors import AlreadyExistsError, WriteFailedError
from snaprebuild.snapshots.run import Run

PLAIN = FIXTURES / "kafka4-mixed"
RECORDS = 452
"""Records of the partition ``plain-0``, from offset 0 on."""
NAME = f"plain-0/{0:020d}-{RECORDS - 1:020d}.parquet"
QUERY = RecordQuery(
    subscribe=("plain",),
    mode=DamageMode.DROPMALFORMED,
    columns=exported_columns(RecordIsolation.READ_COMMITTED),
    fails_on_data_loss=False,
)


def source() -> RecordSource:
    return open_record_source([str(PLAIN)], QUERY, Run())


def files_of(out: Path) -> set[str]:
    return {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}


@pytest.fixture
def exported(tmp_path: Path) -> ExportedPartition:
    """A partition as a task leaves it."""
    make_export_directory(str(tmp_path / "out"))
    return export_partition(source().logs[0], QUERY, str(tmp_path / "out"))


def test_a_file_has_no_name_before_its_result_arrives(exported: ExportedPartition, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert exported.unnamed_path is not None
    assert files_of(out) == {exported.unnamed_path}
    assert not exported.unnamed_path.endswith(".parquet")
    publish(exported, str(out))
    assert files_of(out) == {NAME}
    assert pq.read_table(out / NAME)["offset"].to_pylist() == list(range(RECORDS))


def test_one_of_two_attempts_gets_the_name(exported: ExportedPartition, tmp_path: Path) -> None:
    out = tmp_path / "out"
    again = export_partition(source().logs[0], QUERY, str(out))
    publish(again, str(out))
    assert files_of(out) == {NAME, exported.unnamed_path}
    with pytest.raises(AlreadyExistsError):
        publish(exported, str(out))
    assert files_of(out) == {NAME}


def test_what_no_result_names_is_removed(exported: ExportedPartition, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert exported.unnamed_path is not None
    own = out / "plain-0" / ".records-of-somebody"
    own.write_text("")
    remove_unnamed_files(str(out))
    assert files_of(out) == {str(own.relative_to(out))}
    own.unlink()
    remove_unnamed_files(str(out))
    assert list(out.iterdir()) == []


def test_a_file_that_is_not_what_the_task_wrote(exported: ExportedPartition, tmp_path: Path) -> None:
    """It was cut, as on a network file system; or is on the disk of another machine."""
    out = tmp_path / "out"
    assert exported.unnamed_path is not None
    unnamed = out / exported.unnamed_path
    unnamed.write_bytes(unnamed.read_bytes()[:-1])
    with pytest.raises(WriteFailedError, match=r"bytes, and \d+ were written"):
        publish(exported, str(out))
    assert files_of(out) == set()
    with pytest.raises(WriteFailedError) as failure:
        publish(exported, str(out))
    assert failure.value.errno == errno.ENOENT


def test_a_run_that_fails_leaves_whole_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    make_export_directory(str(out))

    def fail(*_: Any) -> None:
        raise WriteFailedError("no room", path=str(out), errno=errno.ENOSPC)

    monkeypatch.setattr(record_export, "publish", fail)
    with pytest.raises(WriteFailedError, match="no room"):
        export_records(source(), QUERY, [], str(out), limit=None, progress=None)
    assert files_of(out) == set()


def test_a_task_makes_no_directory_but_that_of_its_partition(tmp_path: Path) -> None:
    """Without the directory of the driver, what it wrote would stay on the disk of another machine."""
    with pytest.raises(WriteFailedError) as failure:
        export_partition(source().logs[0], QUERY, str(tmp_path / "elsewhere" / "out"))
    assert failure.value.errno == errno.ENOENT
    assert list(tmp_path.iterdir()) == []


def test_an_export_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    with pytest.raises(WriteFailedError) as failure:
        make_export_directory(out)
    assert (failure.value.errno, failure.value.path) == (errno.ENOTDIR, out)


def test_an_export_directory_that_cannot_be_made_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(record_export.os, "chmod", fail)
    with pytest.raises(WriteFailedError) as failure:
        make_export_directory(str(tmp_path / "out"))
    assert (failure.value.errno, failure.value.path) == (errno.EPERM, str(tmp_path / "out"))
