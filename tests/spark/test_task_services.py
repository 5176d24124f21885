"""A rate is divided among the tasks of a stage, however many of them run at once."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from snaprebuild.errors import StorageError
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.spark.packing import RATED_TASKS
from snaprebuild.spark.task_services import local_cores, rated_tasks, task_services
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits, limited_io
from snaprebuild.storage.s3.request_limits import meters

pytestmark = pytest.mark.full


def session(**settings: str) -> Any:
    """The settings of a session."""
    conf = {f"spark.{name.replace('_', '.')}": value for name, value in settings.items()}
    return SimpleNamespace(conf=SimpleNamespace(get=conf.get))


@pytest.mark.parametrize(
    ("settings", "tasks"),
    [
        ({"master": "local"}, 1),
        ({"master": "local[2]"}, 2),
        ({"master": "local[3,4]"}, 3),
        ({"master": "local[64]"}, RATED_TASKS),
        ({"master": "local[*]"}, min(os.cpu_count() or 1, RATED_TASKS)),
        ({"master": "local-cluster[2,2,1024]"}, 4),
        ({"master": "spark://h:7077", "cores_max": "5"}, 5),
        ({"master": "spark://h:7077"}, RATED_TASKS),
        ({"master": "yarn", "executor_instances": "2", "executor_cores": "3"}, 6),
        ({"master": "yarn", "dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "3", "executor_cores": "1"}, 3),
        ({"master": "yarn", "dynamicAllocation_enabled": "true", "executor_instances": "1", "executor_cores": "1"}, RATED_TASKS),
        ({}, RATED_TASKS),
    ],
)
def test_as_many_tasks_as_can_run_at_once(settings: dict[str, str], tasks: int) -> None:
    assert rated_tasks(session(**settings)) == tasks


@pytest.mark.parametrize(("settings", "share"), [({}, 250), ({"speculation": "true"}, 125), ({"speculation": "TRUE"}, 125)])
def test_all_attempts_together_have_the_rate(settings: dict[str, str], share: int) -> None:
    """Two attempts at a task may run at once with speculation; and two stages of a union."""
    limits = current_limits().io
    try:
        with limited_io(IoLimits(leaves_page_cache=True, bytes_per_second=1000, at_idle_priority=False)):
            services = task_services(session(**settings))
            assert list(services.wrap(iter, 4)([])) == []  # type: ignore[arg-type]
            assert current_limits().io == IoLimits(leaves_page_cache=True, bytes_per_second=share)
            assert list(services.for_stages(2).wrap(iter, 4)([])) == []  # type: ignore[arg-type]
            assert current_limits().io.bytes_per_second == share // 2
    finally:
        meters.counter = None
    assert current_limits().io == limits


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", 1),
        ("local[3]", 3),
        ("local[3,4]", 3),
        ("local[*]", os.cpu_count()),
        ("local-cluster[2,2,1024]", None),
        ("yarn", None),
    ],
)
def test_cores_of_this_machine(master: str, cores: int | None) -> None:
    """None for a cluster, whose tasks follow the work alone."""
    assert local_cores(session(master=master)) == cores


META = "#{date}\nversion=1\nnode.id={node_id}\ncluster.id=x\n"


@pytest.mark.parametrize("becomes", ["another", "missing", "that of another broker"])
def test_an_executor_needs_the_directory_of_the_driver(tmp_path: Path, becomes: str) -> None:
    """Not another one of the same name, in which files seem to be deleted. The roots of two disks have the same inode."""
    logs = tmp_path / "logs"
    (logs / "t-0").mkdir(parents=True)
    (logs / "t-0" / f"{0:020d}.log").touch()
    meta = logs / "meta.properties"
    meta.write_text(META.format(date="Mon", node_id=1))
    task = task_services(session(), open_source((str(logs),)).partitions).wrap(iter, 1)  # type: ignore[arg-type]
    try:
        assert list(task([])) == []
        meta.write_text(META.format(date="Tue", node_id=1))
        assert list(task([])) == [], "its broker wrote the file again"
        if becomes == "that of another broker":
            meta.write_text(META.format(date="Mon", node_id=2))
        else:
            logs.rename(tmp_path / "elsewhere")
        if becomes == "another":
            (logs / "t-0").mkdir(parents=True)
        with pytest.raises(StorageError, match="does not have this directory of the driver"):
            list(task([]))
    finally:
        meters.counter = None


def test_a_partition_on_a_disk_of_its_own_is_compared_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It seems to be empty, or gone, where the disk is not mounted. The directory above it is on a disk of the host."""
    for number in range(2):
        (tmp_path / f"t-{number}").mkdir()
        (tmp_path / f"t-{number}" / f"{0:020d}.log").touch()
    mounted = str(tmp_path / "t-0")
    monkeypatch.setattr(os.path, "ismount", lambda path: path == mounted)
    assert set(task_services(session(), open_source((mounted,)).partitions).log_dirs) == {mounted}
    assert set(task_services(session(), open_source((str(tmp_path),)).partitions).log_dirs) == {mounted, str(tmp_path)}
