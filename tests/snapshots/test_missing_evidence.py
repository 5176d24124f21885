"""Missing evidence never raises trust: every small file of a directory deleted, emptied, overwritten, or from an earlier time.

A verdict, its line and the exit code are compared with those of the intact directory: less may be trusted, and never more.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from budgets import TIER
from cluster_images import remember_images
from manifests import FIXTURES
from plans import make_plan

from formats.partition.partition_metadata import read_partition_metadata
from snaprebuild.cluster.source_check.check import check_sources
from snaprebuild.cluster.source_check.source_question import SourceQuestion
from snaprebuild.cluster.source_check.verdict import SourceVerdict
from snaprebuild.errors import RefusedError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.followers.build import judge_target
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.source_verdict import Purpose, VerdictOutcome
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.tier.upload.source_check import UploadSources

if TYPE_CHECKING:
    from snaprebuild.followers.build import BuildPlan

NOW_MS = 1_795_300_000_000
METADATA = FIXTURES / "kraft-cluster3" / "node1"
GARBAGE = b"\x00garbage \xff\n" * 7


@dataclass(frozen=True)
class Case:
    """A directory with what is asked of it.

    Attributes:
        directory: below the fixtures.
        topic: whose partitions are judged.
        changes: makes it a case of its own, after it was copied.
        metadata: location of a metadata log that is named.
        i_am_the_leader: the operator asserts it.
        broker_epoch: of a live broker, as the operator gives it.
    """

    directory: str
    topic: str
    changes: Callable[[Path], object] | None = None
    metadata: Path | None = None
    i_am_the_leader: bool = False
    broker_epoch: int | None = None

    @property
    def selection(self) -> Selection:
        return Selection(topics=(self.topic,), partitions=frozenset((0,)))


def recreate_topic(log_dir: Path) -> None:
    """The log is that of an earlier topic of the name."""
    (log_dir / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")


def older_marker(log_dir: Path) -> None:
    """Without a metadata log of its own, which would be as old as the marker."""
    (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":14}')
    shutil.rmtree(log_dir / "__cluster_metadata-0")


def no_marker(log_dir: Path) -> None:
    (log_dir / ".kafka_cleanshutdown").unlink()


def low_mark(log_dir: Path) -> None:
    no_marker(log_dir)
    path = log_dir / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("orders 0 533", "orders 0 300"))


def disordered_epochs(log_dir: Path) -> None:
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text("0\n3\n1 0\n0 292\n2 500\n")


def below_log_start(log_dir: Path) -> None:
    """The log ends below its log start offset: a broker deletes it when it starts."""
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\norders 0 600\n")


def cut_above_the_mark(log_dir: Path) -> None:
    """The log ends below its recovery point, and only that shows it: its high watermark is lower."""
    os.truncate(max((log_dir / "orders-0").glob("*.log")), 0)
    path = log_dir / "replication-offset-checkpoint"
    path.write_text(path.read_text().replace("orders 0 533", "orders 0 300"))


CLUSTER, OLD = "kraft-cluster3", "kraft-cluster3/old"
CASES = {
    "healthy": Case(f"{CLUSTER}/node1", "orders"),
    "not in sync, and the operator's word": Case(f"{CLUSTER}/node2", "orders", i_am_the_leader=True),
    "old copy": Case(f"{OLD}/node3-clean-stopped", "orders", metadata=METADATA),
    "made again": Case(f"{OLD}/node3-clean-stopped", "reborn", metadata=METADATA, i_am_the_leader=True),
    "replaced disk": Case(f"{OLD}/node2-replaced-disk", "orders", metadata=METADATA),
    "killed": Case(f"{OLD}/node2-killed", "orders"),
    "unclean, with a low mark": Case(f"{CLUSTER}/node1", "orders", low_mark),
    "another topic id": Case(f"{CLUSTER}/node1", "orders", recreate_topic, i_am_the_leader=True),
    "marker of another epoch": Case(f"{CLUSTER}/node1", "orders", older_marker, METADATA),
    "live": Case(f"{CLUSTER}/node1", "orders", no_marker, broker_epoch=15),
    "disordered epochs": Case(f"{CLUSTER}/node1", "orders", disordered_epochs),
    "below its log start": Case(f"{CLUSTER}/node1", "orders", below_log_start),
    "cut above the high watermark": Case(f"{CLUSTER}/node1", "orders", cut_above_the_mark),
    "before KRaft, by word": Case("kafka27-mixed/logs", "mixed", i_am_the_leader=True),
    "no metadata log": Case("kafka4-mixed/logs", "mixed", i_am_the_leader=True),
}
AS_AFTER_A_KILL = "a deleted marker is what an unclean stop leaves"
NO_LINE = "a broker writes a line only where the log start is above the first segment: no line is what most logs have"
LIMITS = {
    (
        "old copy",
        ".kafka_cleanshutdown: deleted",
    ): f"{AS_AFTER_A_KILL}, and no other file of the copy has the epoch of its last start",
    ("marker of another epoch", ".kafka_cleanshutdown: deleted"): f"{AS_AFTER_A_KILL}, and no other file has the epoch",
    ("cut above the high watermark", ".kafka_cleanshutdown: deleted"): f"{AS_AFTER_A_KILL}; only rolled segments below its line",
    (
        "cut above the high watermark",
        "recovery-point-offset-checkpoint: earlier",
    ): "nothing shows that the file is older than the log",
    ("below its log start", "log-start-offset-checkpoint: deleted"): NO_LINE,
    ("below its log start", "log-start-offset-checkpoint: emptied"): NO_LINE,
    ("below its log start", "log-start-offset-checkpoint: without its line"): NO_LINE,
}
"""Changes after which a rejected replica is written to, each with why nothing in the directory shows it."""
STRIDE = 20 if TIER == "quick" else 1
"""The quick tier takes a part of the changes to each directory, the full tier all of them."""


@dataclass(frozen=True)
class Answer:
    """The answer of one command: how far the replica is trusted, the exit code, and how many snapshots it would write in place."""

    verdict: str
    rank: float
    line: float
    exit_code: int
    written: int = 0


@pytest.fixture(autouse=True)
def each_image_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases ask for the same few metadata logs a thousand times."""
    remember_images(monkeypatch)


def rank_of(verdict: SourceVerdict) -> float:
    if verdict.is_rejected:
        return -2
    if verdict.outcome is VerdictOutcome.UNKNOWN:
        return -1
    return math.inf if verdict.trusted_below is None else verdict.trusted_below


def answer_of(verdict: SourceVerdict | None, exit_code: int) -> Answer:
    if verdict is None:  # nothing is judged, and nothing is written
        return Answer("none", -2, 0, exit_code)
    line = math.inf if verdict.trusted_below is None else verdict.trusted_below
    return Answer(str(verdict), rank_of(verdict), 0 if verdict.is_rejected else line, exit_code)


def bootstrap_answer(case: Case, log_dir: Path, topic_id: bytes | None) -> Answer:
    """The answer of ``follower build``: whether this log directory may get the partition."""
    plan = SimpleNamespace(directory_name=f"{case.topic}-0", topic=case.topic, partition=0, topic_id=topic_id)
    metadata = None if case.metadata is None else str(case.metadata)
    try:
        verdict, findings = judge_target(cast("BuildPlan", plan), str(log_dir), None, metadata, Run())
    except RefusedError:
        return answer_of(None, 3)
    return answer_of(verdict, exit_code_of(findings))


def answers(case: Case, log_dir: Path, topic_id: bytes | None) -> dict[str, Answer]:
    """The answer of every command on partition 0 of the topic."""
    metadata = None if case.metadata is None else str(case.metadata)
    found = {"follower build": bootstrap_answer(case, log_dir, topic_id)}
    for purpose in (Purpose.REBUILD, Purpose.UPLOAD):  # another replica is judged as an upload is
        question = SourceQuestion(
            paths=(str(log_dir),),
            purpose=purpose,
            metadata=metadata,
            i_am_the_leader=case.i_am_the_leader,
            broker_epoch=case.broker_epoch,
            selection=case.selection,
        )
        result = check_sources(question, Run(clock=Clock(NOW_MS, DEFAULT_EXPIRATION_MS), jobs=1))
        verdicts = [each.verdict for each in result.replicas]
        found[f"cluster source --purpose {purpose}"] = answer_of(verdicts[0] if verdicts else None, exit_code_of(result.findings))
    request = RebuildRequest(
        paths=(str(log_dir),), topics=(case.topic,), partitions=(0,), boundaries="all", as_of_ms=NOW_MS, metadata=metadata
    )
    plan = make_plan(request, judges_all=True)
    verdict = cast("SourceVerdict | None", plan.partitions[0].verdict) if plan.partitions else None
    written = sum(len(each.boundaries) for each in plan.partitions)
    found["plan"] = replace(answer_of(verdict, exit_code_of(plan.findings)), written=written)
    source = open_source([str(log_dir)], selection=case.selection)
    sources = UploadSources(
        source.partitions, metadata, Run(), broker_epoch=case.broker_epoch, i_am_the_leader=case.i_am_the_leader
    )
    for each in source.partitions:
        verdict = sources.judge(each)
        needed = verdict.confirmation_finding("", Severity.REFUSED)
        is_refused = verdict.is_rejected or needed is not None or (bool(verdict.unknown_rules) and not verdict.asserted_by_operator)
        found["tier upload"] = answer_of(verdict, 3 if is_refused else exit_code_of([*source.findings, *sources.findings]))
    return found


# ---------------------------------------------------------------------------------------------------------------- what happens to files


def earlier(path: Path) -> bytes | None:
    """A file as it may have been before; None where there is no such file."""
    data = path.read_bytes()
    match path.name:
        case ".kafka_cleanshutdown":
            return (
                b"" if not data else json.dumps({"version": 0, "brokerEpoch": max(json.loads(data)["brokerEpoch"] - 1, 0)}).encode()
            )
        case "meta.properties":
            return b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"directory.id"))
        case "partition.metadata":
            return b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
        case "leader-epoch-checkpoint" if len(lines := data.splitlines()) > 3:
            return b"\n".join((b"0", str(len(lines) - 3).encode(), *lines[2:-1])) + b"\n"
        case "recovery-point-offset-checkpoint" | "replication-offset-checkpoint":
            halved = [[*line.split()[:-1], str(int(line.split()[-1]) // 2)] for line in data.decode().splitlines()[2:]]
            return f"0\n{len(halved)}\n{''.join(' '.join(each) + chr(10) for each in halved)}".encode()
    return None


def without_line(path: Path, topic: str) -> bytes | None:
    if not path.name.endswith("-offset-checkpoint"):
        return None
    lines = [line for line in path.read_text().splitlines()[2:] if not line.startswith(f"{topic} 0 ")]
    return f"0\n{len(lines)}\n{''.join(line + chr(10) for line in lines)}".encode()


SMALL = (".checkpoint", ".snapshot", "-checkpoint", ".metadata", ".properties", "quorum-state", ".kafka_cleanshutdown")


def small_files(log_dir: Path, topic: str) -> Iterator[Path]:
    """Small files of the log directory, of the partition, and of the metadata log. Snapshots and checkpoints are all alike: the
    newest is enough."""
    for place in (log_dir, log_dir / f"{topic}-0", log_dir / "__cluster_metadata-0"):
        newest: dict[str, Path] = {}
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            if path.is_file() and path.name.endswith(SMALL):
                newest[path.suffix if path.name[0].isdigit() else path.name] = path
        yield from newest.values()


def mutations(log_dir: Path, topic: str) -> Iterator[tuple[str, Path, bytes | None]]:
    for path in small_files(log_dir, topic):
        yield f"{path.name}: deleted", path, None
        yield f"{path.name}: emptied", path, b""
        yield f"{path.name}: garbage", path, GARBAGE
        for what, data in (("earlier", earlier(path)), ("without its line", without_line(path, topic))):
            if data is not None:
                yield f"{path.name}: {what}", path, data


def is_more_trusting(before: Answer, after: Answer) -> bool:
    """A rejected replica may become one of which nothing is known: that costs an exit code too, and nothing is written to it either."""
    if after.written > before.written and before.rank == -2:
        return True
    if after.exit_code == 0 and before.exit_code != 0:
        return True
    if after.rank > max(before.rank, -1):
        return True
    return before.rank > -2 and after.line > before.line


@pytest.mark.parametrize("name", CASES)
def test_no_small_file_raises_trust(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    kept_topics = (f"{case.topic}-0", "__cluster_metadata-0")
    log_dir = Path(shutil.copytree(FIXTURES / case.directory, tmp_path / "logs"))
    for path in [each for each in log_dir.iterdir() if each.is_dir() and each.name not in kept_topics]:
        shutil.rmtree(path)
    if case.changes is not None:
        case.changes(log_dir)
    known = log_dir / f"{case.topic}-0" / "partition.metadata"
    topic_id = read_partition_metadata(known.read_bytes()).topic_id if known.exists() else None
    intact = answers(case, log_dir, topic_id)
    if intact["plan"].rank == -2:  # so that there is something to write
        for path in (log_dir / f"{case.topic}-0").glob("*.snapshot"):
            path.unlink()
        intact = answers(case, log_dir, topic_id)
    raised = []
    limits_seen = set()
    count = 0
    first = list(CASES).index(name) % STRIDE
    for what, path, data in list(mutations(log_dir, case.topic))[first::STRIDE]:
        kept = path.read_bytes()
        path.unlink()
        if data is not None:
            path.write_bytes(data)
        for command, answer in answers(case, log_dir, topic_id).items():
            count += 1
            if not is_more_trusting(intact[command], answer):
                continue
            if (name, what) in LIMITS:
                limits_seen.add((name, what))
            else:
                raised.append(f"{what}: {command}: {intact[command]} -> {answer}")
        path.write_bytes(kept)
    assert count * STRIDE >= 80
    assert raised == [], "\n".join(raised)
    if STRIDE == 1:
        assert limits_seen == {each for each in LIMITS if each[0] == name}, "a limit that is gone is not listed"
