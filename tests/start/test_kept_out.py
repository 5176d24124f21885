"""Nothing is written into a directory that the next start deletes or cannot load, whichever of several directories it is."""

import shutil
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from command import in_json, snaprebuild
from log_dirs import snapshot_name
from msgspec import structs
from stopped_broker import made

from formats.partition.file_names import DirectoryForm
from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.broker.duplicate_logs import future_in_two_places
from snaprebuild.broker.fates import Fate, FateKind
from snaprebuild.broker.future_fates import future_fates
from snaprebuild.broker.releases import ReleaseRange
from snaprebuild.broker.start_facts import Assignment, BrokerFacts, PartitionFacts, SegmentEnd, Shutdown, TopicIdFile
from snaprebuild.cli.render.rebuild import answer_with_start
from snaprebuild.cluster.source_check.plan_gate import judge_plans
from snaprebuild.replay.classes import SnapshotClass
from snaprebuild.snapshots.before_start import PreparedPartition
from snaprebuild.snapshots.plan.plan_model import BoundaryPlan, PartitionPlan, ReadySnapshot
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.plan.planner import make_plan
from snaprebuild.snapshots.plan.start_gate import fate_against_writing, without_writing
from snaprebuild.snapshots.rebuild.rebuild_result import PartitionResult
from snaprebuild.snapshots.rebuild.run import RebuildRun
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.fingerprint import Fingerprint
from snaprebuild.storage.log_dir import ClusterKind

TOPIC_ID, DIRECTORY_ID = (uuid_from_text(text) for text in ("jbhM2bicRN6uA2U4lwDEMw", "gm2mFj46QE-Snp46ULzMsA"))
BROKER = BrokerFacts(cluster_kind=ClusterKind.KRAFT, releases=ReleaseRange((4, 3, 1), (4, 3, 1)))
RELEASE = ("--kafka-release", "4.3.1")


def facts_of(path: Path, form: DirectoryForm, end: int) -> PartitionFacts:
    assignment = Assignment(topic_id=TOPIC_ID, is_replica=True, is_current=True, directory_id=DIRECTORY_ID)
    return PartitionFacts(
        topic_partition="orders-0",
        path=str(path),
        form=form,
        shutdown=Shutdown.CLEAN,
        topic_id=TOPIC_ID,
        topic_id_file=TopicIdFile.PRESENT,
        directory_id=DIRECTORY_ID if form is DirectoryForm.FUTURE else None,
        assignment=assignment,
        end=SegmentEnd(offset=end, position_bytes=100, size_bytes=100),
    )


def kept_out(paths: list[Path], fate: Fate) -> list[bool]:
    """Whether a fate keeps snapshots out of partitions."""
    partitions = open_source([str(path) for path in paths]).partitions
    assert len(partitions) == len(paths)
    return [fate_against_writing(partition, [fate]) is fate for partition in partitions]


def test_each_directory_of_a_partition_that_is_there_more_than_once(tmp_path: Path) -> None:
    first = made(tmp_path / "d1").parent
    log_dirs = [first]
    for number in (2, 3):
        log_dir = Path(shutil.copytree(first, tmp_path / f"d{number}"))
        text = (log_dir / "meta.properties").read_text()
        (log_dir / "meta.properties").write_text(text.replace("directory.id=1", f"directory.id={number}"))
        log_dirs.append(log_dir)
    for log_dir in log_dirs:
        shutil.copytree(log_dir / "orders-0", log_dir / f"other{log_dir.name}-0")
        for name in ("orders-0", f"other{log_dir.name}-0"):
            (log_dir / name / snapshot_name(10)).unlink()
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={','.join(map(str, log_dirs))}\n")
    plan = in_json("plan", "--server-properties", properties, *RELEASE).document
    planned = {each["topic"] for each in plan["partitions"] if each["boundaries"]}
    assert planned == {"otherlogs", "otherd2", "otherd3"}


@pytest.mark.parametrize(("place", "kind"), [("d2", FateKind.RECORDS_CUT), ("d1", FateKind.NO_START)])
def test_the_replica_that_a_future_copy_is_to_replace(tmp_path: Path, place: str, kind: FateKind) -> None:
    replica, other = made(tmp_path / "d1"), made(tmp_path / "d3")
    copy = tmp_path / place / "logs" / f"orders-0.{'a' * 32}-future"
    facts = [facts_of(replica, DirectoryForm.PLAIN, 30), facts_of(copy, DirectoryForm.FUTURE, 20)]
    (fate,) = future_fates(facts, BROKER)
    assert fate.kind is kind
    assert kept_out([replica, other], fate) == [True, False]


def test_the_replica_whose_move_ends(tmp_path: Path) -> None:
    """``LogManager.replaceCurrentWithFutureLog`` deletes its directory, with every snapshot in it."""
    replica, other = made(tmp_path / "d1"), made(tmp_path / "d3")
    copy = tmp_path / "d2" / "logs" / f"orders-0.{'a' * 32}-future"
    facts = [facts_of(replica, DirectoryForm.PLAIN, 30), facts_of(copy, DirectoryForm.FUTURE, 30)]
    (fate,) = future_fates(facts, BROKER)
    assert fate.kind is FateKind.COPY_TAKES_OVER
    assert kept_out([replica, other], fate) == [True, False]


def test_each_of_two_future_copies() -> None:
    copies = [facts_of(Path(f"/{name}/orders-0.{'a' * 32}-future"), DirectoryForm.FUTURE, 30) for name in ("d1", "d2", "d3")]
    (fate,) = future_in_two_places(copies, BROKER)
    assert {fate.path, *fate.other_paths} == {copy.path for copy in copies}


def loses_its_end(tmp_path: Path) -> Path:
    """A partition of a broker that was killed, whose log ends below the high watermark of the checkpoint."""
    directory = made(tmp_path, clean=False)
    (directory.parent / "replication-offset-checkpoint").write_text("0\n1\norders 0 9000\n")
    return directory


def lost_flushed_records(tmp_path: Path) -> Path:
    """A partition whose log ends below its recovery point: while a broker runs that would be no sign of a loss (rule R13)."""
    directory = made(tmp_path)
    (directory.parent / "recovery-point-offset-checkpoint").write_text("0\n1\norders 0 9000\n")
    return directory


def spoil(path: Path) -> bytes:
    """Makes a snapshot wrong."""
    data = bytearray(path.read_bytes())
    data[2] ^= 1
    path.write_bytes(data)
    return bytes(data)


def test_set_aside_where_nothing_lacks_compares_and_reports_the_state_alone(tmp_path: Path) -> None:
    directory = loses_its_end(tmp_path)
    assert in_json("rebuild", directory.parent, *RELEASE).exit_code == 1
    run = in_json("rebuild", "--set-aside", directory.parent, *RELEASE)
    assert run.exit_code == 1
    assert [each["code"] for each in run.document["findings"] if each["severity"] != "note"] == ["lost-log-end"], run
    assert [each["action"] for each in run.document["partitions"][0]["boundaries"]] == ["equal"] * 3


@pytest.mark.parametrize("verb", ["rebuild", "before-start"])
def test_a_left_over_name_stays_where_nothing_is_written(verb: str, tmp_path: Path) -> None:
    directory = loses_its_end(tmp_path)
    left = directory / f"{snapshot_name(10)}.tmp"
    left.hardlink_to(directory / snapshot_name(10))
    assert in_json(verb, directory.parent, *RELEASE).exit_code == 1
    assert left.exists()
    (directory.parent / "replication-offset-checkpoint").unlink()
    assert in_json(verb, directory.parent, *RELEASE).exit_code == 0
    assert not left.exists()


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize(("form", "stays"), [(made, False), (lost_flushed_records, True)])
def test_our_own_lock_is_no_broker_for_a_left_over_name(
    form: Callable[[Path], Path], tmp_path: Path, *, stays: bool, is_held: bool
) -> None:
    """An install holds all log directories before it looks for left-over names."""
    directory = form(tmp_path)
    left = directory / f"{snapshot_name(10)}.tmp"
    left.hardlink_to(directory / snapshot_name(10))
    plan = make_plan(RebuildRequest((str(directory.parent),), kafka_release="4.3.1", as_of_ms=1), judge_plans)
    assert [each.boundaries for each in plan.partitions] == [()]
    with RebuildRun(Run()) as writing:
        if is_held:
            writing.locks.hold(str(directory.parent))
        writing.replay(plan, [PartitionResult(each) for each in plan.partitions])
    assert left.exists() is stays


@pytest.mark.parametrize("lacks", [False, True])
def test_set_aside_reports_a_wrong_snapshot_and_leaves_it(tmp_path: Path, *, lacks: bool) -> None:
    directory = loses_its_end(tmp_path)
    wrong = directory / snapshot_name(10)
    data = spoil(wrong)
    if lacks:
        (directory / snapshot_name(20)).unlink()
    run = in_json("rebuild", "--set-aside", directory.parent, *RELEASE)
    assert ("wrong-snapshot", 10) in {(each["code"], each["offset"]) for each in run.document["findings"]}
    assert ("unsafe-next-start" in {each["code"] for each in run.document["findings"]}) is lacks
    assert wrong.read_bytes() == data
    assert len(list(directory.glob("*.snapshot*"))) == (2 if lacks else 3)
    assert "orders-0" in snaprebuild("rebuild", "--set-aside", directory.parent, *RELEASE).text


def test_before_start_counts_the_same_everywhere(tmp_path: Path) -> None:
    directory = loses_its_end(tmp_path)
    for offset in (10, 20):
        (directory / snapshot_name(offset)).unlink()
    command = ("before-start", "--dry-run", directory.parent, *RELEASE)
    document = in_json(*command).document
    assert [document["totals"]["refused"], document["partitions"][0]["totals"]["refused"]] == [2, 2]
    run = snaprebuild(*command)
    rows = [words for words in map(str.split, run.stdout.splitlines()) if words[:1] == ["orders-0"]]
    (row,) = [words for words in rows if words[1][0].isdigit()]  # the first line begins with the name, too
    assert row[4] == "2", run.text  # partition, two words of a size, written, not written
    assert "; 2 not written; " in run.stderr
    first = run.stdout.splitlines()[0]
    assert run.stdout.count(first) == 1, run.stdout


@pytest.mark.parametrize(("kind", "count"), [(FateKind.OLD_REPLICA, 0), (FateKind.END_LOST, 1)])
def test_no_snapshot_of_an_old_replica_is_left_out(tmp_path: Path, kind: FateKind, count: int) -> None:
    (source,) = open_source([str(made(tmp_path))]).partitions
    fate = Fate(kind=kind, code="", subject="orders-0", path=source.directory.path, cause="", evidence="", log_line="", remedy="")
    wanted = PartitionPlan(source=source, target="", boundaries=(BoundaryPlan(10, False, False, ""),))
    prepared = PreparedPartition(PartitionResult(without_writing(wanted, wanted, fate)), 0, 0)
    assert prepared.left_out == count


def test_what_an_earlier_run_has_staged_is_installed_next(tmp_path: Path) -> None:
    """A fate of another partition does not take the place of that command; where nothing is planned, it does."""
    request = RebuildRequest((str(made(tmp_path)),), as_of_ms=1)
    (source,) = open_source(request.paths).partitions
    fate = Fate(kind=FateKind.END_LOST, code="", subject="other-0", path="/other-0", cause="", evidence="", log_line="", remedy="")
    boundary = BoundaryPlan(10, is_log_end=False, exists=False, expected_class="")
    ready = ReadySnapshot(boundary=boundary, path="", file=Fingerprint.of(b"", 0), snapshot_class=SnapshotClass.EXACT, entries=0)
    staged = PartitionPlan(source=source, target="", ready=(ready,))
    nothing = PartitionPlan(source=source, target="")
    plan = structs.replace(make_plan(request, judge_plans), fates=(fate,))
    with click.Context(click.Command("install")):
        following = [answer_with_start(("", ["install"]), [each], plan)[1] for each in (staged, nothing)]
    assert following == [["install"], []]
