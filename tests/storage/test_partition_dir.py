"""One listing of a partition directory: every name where it belongs, the quick way and the slow way alike."""

import os
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from manifests import PartitionFixture
from odd_files import ODD_KINDS, make_odd

from formats.partition.file_names import FileKind, FileSuffix, PartitionDirectoryName, parse_file_name
from snaprebuild.errors import GonePartitionError, ReadFailedError
from snaprebuild.storage import partition_dir
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import PartitionDir, list_partition_dir, partition_dir_of_entries
from snaprebuild.storage.store import FileIdentity, Ownership
from snaprebuild.storage.store_path import StorePath

NAME = PartitionDirectoryName("t", 0)


def listed(path: Path) -> PartitionDir:
    return list_partition_dir(str(path), NAME)


def touch(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_bytes(b"x" * len(name))
    return directory


def test_bundled_partitions(partition_fixture: PartitionFixture) -> None:
    found = listed(partition_fixture.directory)
    assert [segment.base_offset for segment in found.segments] == [part.base_offset for part in partition_fixture.segments]
    assert [segment.size_bytes for segment in found.segments] == [part.bytes for part in partition_fixture.segments]
    assert found.size_bytes == sum(part.bytes for part in partition_fixture.segments)
    names = {path.name for path in partition_fixture.directory.iterdir()}
    assert {file.name for _, file in found.snapshots} == {name for name in names if name.endswith(".snapshot")}
    for segment in found.segments:
        stem = f"{segment.base_offset:020d}"
        assert (segment.offset_index is not None) == (f"{stem}.index" in names)
        assert (segment.time_index is not None) == (f"{stem}.timeindex" in names)
        assert (segment.transaction_index is not None) == (f"{stem}.txnindex" in names)
    assert (found.misnamed, found.swapped, found.temporary, found.unreadable, found.lone_indexes) == ((), (), (), (), ())
    assert found.has_leader_epochs == ("leader-epoch-checkpoint" in names)


def test_every_name_where_it_belongs(tmp_path: Path) -> None:
    stem = f"{5:020d}"
    touch(
        tmp_path,
        *(f"{stem}{ending}" for ending in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
        f"{7:020d}.snapshot",
        f"{9:020d}.index",
        f"{9:020d}.txnindex",
        f"{5:020d}.snapshot.tmp",
        f"{5:020d}.snapshot.set-aside.1",
        f"{1:020d}.log.deleted",
        f"{2:020d}.snapshot.deleted",
        f"{3:020d}.log.swap",
        f"{4:020d}.index.cleaned",
        "report.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "notes.txt",
    )
    (tmp_path / "below").mkdir()
    found = listed(tmp_path)
    (segment,) = found.segments
    assert (segment.base_offset, segment.log.name, segment.offset_index, segment.time_index) == (
        5,
        f"{stem}.log",
        f"{stem}.index",
        f"{stem}.timeindex",
    )
    assert segment.transaction_index == len(f"{stem}.txnindex")
    assert [(offset, file.name) for offset, file in found.snapshots] == [(5, f"{stem}.snapshot"), (7, f"{7:020d}.snapshot")]
    assert found.lone_indexes == (f"{9:020d}.index", f"{9:020d}.txnindex")
    assert found.temporary == (f"{5:020d}.snapshot.tmp",)
    assert found.deleted == (f"{1:020d}.log.deleted", f"{2:020d}.snapshot.deleted")
    assert found.swapped == (f"{3:020d}.log.swap", f"{4:020d}.index.cleaned")
    assert found.misnamed == ("report.snapshot",)
    assert found.sub_directories == ("below",)
    assert found.has_leader_epochs
    assert found.others == 2, "notes.txt, and what was set aside"
    assert found.snapshot_at(7) is not None
    assert found.snapshot_at(6) is None


digits = st.text("0123456789", min_size=18, max_size=21) | st.sampled_from(
    ("9223372036854775807".rjust(20, "0"), "9223372036854775808".rjust(20, "0"), "٠" * 20, "²" * 20, "-" + "0" * 19)
)
ENDINGS = [*(".log", ".index", ".snapshot", ".log.deleted", ".snapshot.tmp"), *(".LOG", "", ".log.swap", ".log.", "log")]


@given(st.sets(st.builds(str.__add__, digits, st.sampled_from(ENDINGS)), max_size=12))
def test_the_quick_way_reads_names_as_the_grammar_does(names: set[str]) -> None:
    """The frequent names are recognized by slicing: the same answer as ``parse_file_name`` gives."""
    entries = [_Entry(name) for name in names]
    found = partition_dir.partition_dir_of_entries(StorePath(LOCAL, "/"), NAME, entries)  # type: ignore[arg-type]
    kinds = {name: parse_file_name(name) for name in names}

    def of(kind: FileKind) -> set[str]:
        return {name for name, parsed in kinds.items() if parsed and (parsed.kind, parsed.suffix) == (kind, FileSuffix.NONE)}

    assert {segment.log.name for segment in found.segments} == of(FileKind.LOG)
    assert {file.name for _, file in found.snapshots} == of(FileKind.PRODUCER_SNAPSHOT)
    assert [segment.base_offset for segment in found.segments] == sorted(segment.base_offset for segment in found.segments)


class _Entry:
    """A directory entry of a regular file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stat(self, *, follow_symlinks: bool) -> os.stat_result:
        assert not follow_symlinks
        return os.stat(__file__)

    def is_file(self, *, follow_symlinks: bool) -> bool:
        assert not follow_symlinks
        return True

    def is_dir(self, *, follow_symlinks: bool) -> bool:
        assert not follow_symlinks
        return False


@pytest.mark.parametrize("kind", ODD_KINDS)
def test_what_is_no_regular_file_is_distinguished(kind: str, tmp_path: Path) -> None:
    touch(tmp_path, f"{0:020d}.log")
    names = (f"{1:020d}.log", f"{1:020d}.snapshot", f"{0:020d}.txnindex")
    for name in names:
        make_odd(tmp_path / name, kind)
    found = listed(tmp_path)
    assert set(found.unreadable) == set(names)
    assert [segment.base_offset for segment in found.segments] == [0]
    assert found.snapshots == ()


def test_identity_and_owner(tmp_path: Path) -> None:
    touch(tmp_path, f"{0:020d}.log")
    path = tmp_path / f"{0:020d}.log"
    path.chmod(0o640)
    (segment,) = listed(tmp_path).segments
    status = path.stat()
    assert segment.log.identity == FileIdentity(status.st_size, status.st_mtime_ns, status.st_ino)
    assert segment.log.ownership == Ownership(status.st_uid, status.st_gid, 0o640)
    path.write_bytes(b"other")
    assert listed(tmp_path).segments[0].log.identity != segment.log.identity


def test_a_file_that_vanishes_between_listing_and_looking(tmp_path: Path) -> None:
    touch(tmp_path, f"{0:020d}.log", f"{1:020d}.log", f"{1:020d}.snapshot")
    with os.scandir(tmp_path) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    (tmp_path / f"{1:020d}.log").unlink()
    (tmp_path / f"{1:020d}.snapshot").unlink()
    found = partition_dir.partition_dir_of_entries(StorePath(LOCAL, str(tmp_path)), NAME, entries)
    assert [segment.base_offset for segment in found.segments] == [0]
    assert found.snapshots == ()


def test_no_directory(tmp_path: Path) -> None:
    with pytest.raises(ReadFailedError, match="cannot be listed") as caught:
        listed(tmp_path / "absent")
    assert caught.value.path == str(tmp_path / "absent")


def test_too_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    touch(tmp_path, *(f"{n:020d}.log" for n in range(5)))
    monkeypatch.setattr(partition_dir, "ENTRIES_MAX", 5)
    assert len(listed(tmp_path).segments) == 5
    monkeypatch.setattr(partition_dir, "ENTRIES_MAX", 4)
    with pytest.raises(ReadFailedError, match="more than 4 files"):
        listed(tmp_path)


@pytest.mark.parametrize("ending", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_a_file_that_is_deleted_where_listings_have_no_kinds(ending: str, tmp_path: Path) -> None:
    """XFS without ``ftype`` does this: the kind of each file is asked for. A file that is gone by then is no irregular one."""
    stem = f"{5:020d}"
    touch(tmp_path / "t-0", f"{stem}.log")
    gone = mock.Mock(**{"is_file.return_value": False, "is_dir.return_value": False, "stat.side_effect": FileNotFoundError})
    gone.name = stem + ending
    entries = [gone, *(each for each in os.scandir(tmp_path / "t-0") if each.name != gone.name)]
    found = partition_dir_of_entries(StorePath(LOCAL, str(tmp_path / "t-0")), NAME, entries, status=os.stat(tmp_path / "t-0"))
    assert (found.unreadable, found.lone_indexes, found.snapshots) == ((), (), ())
    assert all(each.offset_index is each.time_index is each.transaction_index is None for each in found.segments)


def test_a_directory_that_is_made_again_while_it_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topic was deleted and created again: the names are those of the old directory, and none of its files is there."""
    path = touch(tmp_path / "t-0", f"{5:020d}.log", f"{7:020d}.log")
    entries_of = partition_dir.entries_of

    def listed_before(directory: str, what: str) -> list[os.DirEntry[str]]:
        entries = entries_of(directory, what)
        path.rename(f"{path}.0123456789abcdef0123456789abcdef-delete")
        path.mkdir()
        return entries

    monkeypatch.setattr(partition_dir, "entries_of", listed_before)
    with pytest.raises(GonePartitionError):
        listed(path)
