"""``install`` as a rebuild: what is linked and what is replayed have one result, and what all partitions share is read once."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from log_dirs import copy_of, remove_snapshots, snapshot_name, snapshots_in, truth
from manifests import CLUSTER
from staged_logs import bases_of, earlier, installed_here, staged

from snaprebuild.cluster.metadata import topic_storage
from snaprebuild.errors import GoneFileError
from snaprebuild.snapshots import install as module
from snaprebuild.snapshots.rebuild import run
from snaprebuild.snapshots.rebuild.task import RebuildTask


def test_a_partition_that_is_planned_again_keeps_what_was_linked_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is gone when the segments that were rolled since are replayed."""
    logs = copy_of("kafka27-mixed", tmp_path)
    remove_snapshots(logs / "mixed-0")
    put_back = earlier(logs, "mixed-0", keep=8)
    staged(logs, tmp_path / "staged", "--topic", "mixed")
    put_back()
    bases = bases_of(logs / "mixed-0")
    lost = tmp_path / "staged" / "mixed-0.staged" / snapshot_name(bases[2])
    lost.unlink()
    whole, rounds = run.run_tasks, []

    def run_tasks(tasks: Sequence[RebuildTask], *rest: object) -> None:
        rounds.append(len(tasks))
        if len(rounds) > 1:
            whole(tasks, *rest)  # type: ignore[arg-type]
            return
        for task in tasks:
            task.fail(GoneFileError("was deleted", path=str(logs / "mixed-0" / "x.log")))
            task.settle()

    monkeypatch.setattr(run, "run_tasks", run_tasks)
    done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "receipt.jsonl")
    (partition,) = done.partitions
    assert rounds == [1, 1]
    assert [each.code for each in done.findings if each.severity] == ["stale-staged"]
    assert done.exit_code == 3, "the refusal of the first look stays"
    boundaries = [*bases[1:], 8231]
    assert [each.offset for each in partition.boundaries] == sorted(each.offset for each in partition.boundaries)
    assert {each.offset: each.action for each in partition.boundaries if each.action != "written"} == {bases[2]: "refused"}
    kafka, found = truth("kafka27-mixed", "mixed-0"), snapshots_in(logs / "mixed-0")
    assert found == {offset: kafka[offset] for offset in boundaries if offset != bases[2]}


def test_the_metadata_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once for each batch of partitions: a large one takes seconds, and the broker waits."""
    node = Path(shutil.copytree(CLUSTER / "old" / "node3-clean-stopped", tmp_path / "node"))
    for partition in node.glob("orders-*"):
        remove_snapshots(partition)
    staged(node, tmp_path / "staged", "--topic", "orders")
    read, paths = topic_storage.read_topic_storages, []

    def reading(path: str) -> topic_storage.TopicStorages:
        paths.append(path)
        return read(path)

    monkeypatch.setattr(topic_storage, "read_topic_storages", reading)
    monkeypatch.setattr(module, "BATCH_PARTITIONS", 1)
    done = installed_here(tmp_path / "staged" / "plan.jsonl", tmp_path / "receipt.jsonl")
    assert len([each for each in done.partitions if each.boundaries]) == 3
    assert paths == [str(node / "__cluster_metadata-0")]
