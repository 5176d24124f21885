"""Log directories: partitions below any path, and what the small files of a broker say."""

import json
import os
from pathlib import Path

import pytest
from log_dirs import batch, copy_of, make_log_dir, write_partition
from manifests import FIXTURES, partition_fixtures

from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.storage import log_dir, partition_dir
from snaprebuild.storage.log_dir import Discovery, find_partitions, read_leader_epochs, read_log_dir
from snaprebuild.storage.store_path import path_of


def names(found: Discovery) -> list[str]:
    return [os.path.basename(partition.path) for each in found.log_dirs for partition in each.partitions]


def test_all_bundled_partitions_below_one_path() -> None:
    found = find_partitions([str(FIXTURES)])
    paths = {partition.path for each in found.log_dirs for partition in each.partitions}
    assert {str(fixture.directory) for fixture in partition_fixtures()} <= paths
    assert not found.faults
    assert not found.duplicates
    assert not [path for path in paths if "/remote/" in path], "objects of remote storage are no partitions"


def test_log_directories_are_recognized_by_what_is_in_them(tmp_path: Path) -> None:
    """A disk of a broker may be named like a partition, and a partition may be empty."""
    disk = make_log_dir(tmp_path / "data-1")
    write_partition(disk / "t-0", {0: batch(0)})
    (disk / "t-1").mkdir()
    (disk / "remote-log-index-cache").mkdir()
    (disk / "remote-log-index-cache" / "t-9").mkdir()
    bare = tmp_path / "copies-2" / "t-2"
    write_partition(bare, {0: batch(0)})
    found = find_partitions([str(tmp_path)])
    assert names(found) == ["t-2", "t-0", "t-1"]
    assert [each.state.path for each in found.log_dirs] == [str(tmp_path / "copies-2"), str(disk)]
    assert [each.state.is_broker_directory for each in found.log_dirs] == [False, True]
    assert found.named == set()
    assert find_partitions([str(bare)]).named == {str(bare)}


@pytest.mark.parametrize("name", ["t", "t-x", "..-0", "t-0.tmp"])
def test_names_that_are_no_partition(name: str, tmp_path: Path) -> None:
    write_partition(make_log_dir(tmp_path / "logs") / name, {0: batch(0)})
    assert names(find_partitions([str(tmp_path)])) == []


def test_partitions_stand_in_order(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for name in ("b-0", "a-10", "a-9", "a-b-1"):
        write_partition(logs / name, {0: batch(0)})
    assert names(find_partitions([str(logs)])) == ["a-9", "a-10", "a-b-1", "b-0"]


def test_a_path_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="does not exist"):
        find_partitions([str(tmp_path / "absent")])
    with pytest.raises(UsageError, match="is no directory"):
        find_partitions([str(tmp_path / "file")])


def test_loops_and_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: batch(0)})
    (logs / "again").symlink_to(tmp_path)
    found = find_partitions([str(tmp_path)])
    assert names(found) == ["t-0"]
    deep = tmp_path / "deep"
    for _ in range(5):
        deep /= "x"
    write_partition(deep / "u-0", {0: batch(0)})
    assert names(find_partitions([str(tmp_path)])) == ["u-0", "t-0"]
    monkeypatch.setattr(log_dir, "DEPTH_MAX", 3)
    limited = find_partitions([str(tmp_path)])
    assert names(limited) == ["t-0"]
    assert "nested more than 3 deep" in str(limited.faults[0])


def test_what_the_bundled_small_files_say() -> None:
    for fixture in ("kafka27-mixed", "kafka27-killed", "kafka4-mixed", "damaged"):
        state = read_log_dir(path_of(str(FIXTURES / fixture / "logs")))
        manifest = json.loads((FIXTURES / fixture / "manifest.json").read_text())
        assert state.was_shut_down_cleanly == (manifest["shutdown"] == "clean")
        assert state.is_broker_directory == (fixture != "damaged")
        assert state.faults == ()
        for partition, about in manifest["partitions"].items():
            assert (state.log_starts or {}).get(partition) == about["log_start_offset_checkpoint"]
            if manifest["shutdown"] == "clean":
                assert state.recovery_points is not None
                assert state.recovery_points[partition] == about["end_offset"]
    mixed = read_log_dir(path_of(str(FIXTURES / "kafka27-mixed" / "logs")))
    assert mixed.cleaner_points == {"compacted-0": 1328, "__transaction_state-1": 468}
    assert mixed.log_starts == {"deleted-0": 298}
    assert mixed.meta is not None
    assert mixed.high_watermarks is not None


CHECKPOINTS = ("recovery-point", "log-start", "replication", "cleaner")


@pytest.mark.parametrize("name", [f"{each}-offset-checkpoint" for each in CHECKPOINTS])
@pytest.mark.parametrize("data", [b"1\n0\n", b"\xff\xff"])
def test_a_checkpoint_that_does_not_parse_is_a_fault_and_counts_as_absent(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    state = read_log_dir(path_of(str(tmp_path)))
    assert len(state.faults) == 1
    assert str(tmp_path / name) in state.faults[0]
    assert (state.recovery_points, state.log_starts, state.high_watermarks, state.cleaner_points) == (None, None, None, None)
    assert state.is_broker_directory


def test_a_small_file_that_cannot_be_read(tmp_path: Path) -> None:
    absent = read_log_dir(path_of(str(tmp_path)))
    assert (absent.clean_shutdown, absent.meta, absent.faults, absent.is_broker_directory) == (None, None, (), False)
    (tmp_path / "meta.properties").mkdir()
    (tmp_path / "recovery-point-offset-checkpoint").symlink_to("/etc/passwd")
    state = read_log_dir(path_of(str(tmp_path)))
    assert len(state.faults) == 2
    assert state.meta is None
    assert state.recovery_points is None


def test_leader_epochs(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    (found,) = find_partitions([str(logs / "mixed-0")]).log_dirs[0].partitions
    lines = (logs / "mixed-0" / "leader-epoch-checkpoint").read_text().splitlines()[2:]
    epochs = read_leader_epochs(found)
    assert epochs is not None
    assert [f"{each.epoch} {each.start_offset}" for each in epochs] == [" ".join(line.split()) for line in lines]
    bare = write_partition(tmp_path / "bare" / "t-0", {0: batch(0)})
    (partition,) = find_partitions([str(bare)]).log_dirs[0].partitions
    assert read_leader_epochs(partition) is None


def test_a_directory_with_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {n: batch(n) for n in range(9)})
    write_partition(logs / "u-0", {0: batch(0)})
    monkeypatch.setattr(partition_dir, "ENTRIES_MAX", 8)
    found = find_partitions([str(logs)])
    assert names(found) == ["u-0"]
    (fault,) = found.faults
    assert isinstance(fault, ReadFailedError)
    assert fault.path == str(logs / "t-0") or "t-0" in str(fault)
