"""A `stage` that is refused, or that can stage nothing, leaves the plan of an earlier run as it is: `install` judges each reason again."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from command import in_json
from log_dirs import copy_of
from msgspec.structs import replace
from plans import make_plan
from staged_logs import installed, running

from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.source.boundary_needs import LeftOut, LeftOutReason
from snaprebuild.snapshots.staging.resume import is_disproved
from snaprebuild.snapshots.staging.staged_plan import load_staged_plan
from snaprebuild.storage.local.directories import hold_directory

CHECKPOINTS = ("recovery-point", "replication", "log-start", "cleaner")
STAGED = {"would_write": 14}
DISPROVES = {LeftOut.DISTRUSTED}
"""The reasons that are about the bytes: the replica is not one in sync. Each other reason is one of the place, a setting or the start."""


@contextmanager
def moved(path: Path) -> Iterator[None]:
    """A file is elsewhere meanwhile."""
    away = path.parent.parent / f"{path.name}.away"
    shutil.move(path, away)
    yield
    shutil.move(away, path)


@contextmanager
def containing(path: Path, text: str) -> Iterator[None]:
    """A file has another text meanwhile."""
    before = path.read_bytes()
    path.write_text(text)
    yield
    path.write_bytes(before)


@contextmanager
def bare(logs: Path) -> Iterator[None]:
    """Nothing shows that it is the directory of a broker."""
    with ExitStack() as away:
        for name in ("meta.properties", *(f"{each}-offset-checkpoint" for each in CHECKPOINTS)):
            away.enter_context(moved(logs / name))
        yield


@contextmanager
def unknown_directory(logs: Path) -> Iterator[None]:
    """The broker does not start."""
    (logs / "unknown").mkdir()
    yield
    (logs / "unknown").rmdir()


def not_ready(logs: Path) -> AbstractContextManager[None]:
    """Remote storage is on, and the protocol is too old."""
    path = logs.parent / "server.properties"
    return containing(path, f"{path.read_text()}remote.log.storage.system.enable=true\n")


REFUSALS: dict[str, Callable[[Path], AbstractContextManager[object]]] = {
    "topics without an id": not_ready,
    "a broker that does not start": unknown_directory,
    "not known to be compacted": lambda logs: containing(logs / "cleaner-offset-checkpoint", "nothing\n"),
    "no files of a broker": bare,
    "another run stages": lambda logs: hold_directory(str(logs.parent / "staged")),
    "no configuration": lambda logs: moved(logs.parent / "server.properties"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_the_earlier_plan_is_kept(name: str, tmp_path: Path) -> None:
    logs = running(copy_of("kafka27-mixed", tmp_path))
    properties = tmp_path / "server.properties"
    properties.write_text(f"zookeeper.connect=localhost:1\nlog.dirs={logs}\ninter.broker.protocol.version=2.7\n")
    words = ("stage", "--server-properties", properties, "--to", tmp_path / "staged")
    assert in_json(*words).exit_code == 0
    plan = tmp_path / "staged" / "plan.jsonl"
    before = plan.read_bytes()
    with REFUSALS[name](logs):
        refused = in_json(*words)
    assert refused.exit_code != 0, refused
    assert plan.read_bytes() == before
    dry = installed(tmp_path / "staged", tmp_path / "receipt.jsonl", "--dry-run")
    assert (dry.exit_code, dry.totals) == (0, STAGED)


@pytest.mark.parametrize("kind", LeftOut)
def test_what_disproves_staged_snapshots(kind: LeftOut, tmp_path: Path) -> None:
    """Each reason why a boundary gets no snapshot was decided on: what is staged there is taken out of the plan, or kept."""
    logs = running(copy_of("kafka27-mixed", tmp_path))
    assert in_json("stage", logs, "--to", tmp_path / "staged", "--topic", "mixed").exit_code == 0
    (staged,) = load_staged_plan(str(tmp_path / "staged" / "plan.jsonl")).partitions
    (plan,) = make_plan(RebuildRequest((str(logs),), topics=("mixed",), stage=(str(tmp_path / "staged"),))).partitions
    left_out = replace(plan, boundaries=(), not_planned=tuple((each.offset, LeftOutReason(kind, "why")) for each in staged.due))
    assert is_disproved(left_out, staged) == (kind in DISPROVES)
