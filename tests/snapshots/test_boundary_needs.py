"""One number for missing snapshots: every command counts the same boundaries, before and after a rebuild."""

import json
import random
import shutil
import tempfile
from pathlib import Path

import pytest
from budgets import each_seed, scaled
from log_dirs import EMPTY_SNAPSHOT, copy_of, make_log_dir, snapshot_name
from manifests import FIXTURES
from msgspec.structs import replace
from plans import make_plan

from snaprebuild.cli.output import json_text
from snaprebuild.cli.render.rebuild import plan_document, rebuild_document
from snaprebuild.cli.render.report import partition_next_command
from snaprebuild.cli.render.scan import scan_document
from snaprebuild.cli.render.verify import VerifyView
from snaprebuild.cluster.judged_verify import JudgedVerify
from snaprebuild.documents.envelope import members_of_document
from snaprebuild.replay.window import Clock
from snaprebuild.report.make import make_report
from snaprebuild.report.page_status import page_totals
from snaprebuild.snapshots.plan.plan_model import plan_counts
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.snapshots.rebuild.run import rebuild
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.scan import scan_parts
from snaprebuild.snapshots.scan.next_start import with_next_start
from snaprebuild.snapshots.scan.scan import scan_source
from snaprebuild.snapshots.source.boundary_needs import LeftOut, reason_not_needed
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.snapshots.verify import verify

NO_REQUEST = scan_parts.ScanRequest(paths=[], server_properties=None, topics=[], partitions=[])

CLOCK = Clock(1_795_261_244_275, 86_400_000)


def counted_by_each(root: Path, scratch: Path) -> dict[str, object]:
    """The number of missing snapshots by command, with what ``rebuild`` would write in place and to another directory."""
    scratch.mkdir(exist_ok=True)
    scanned = with_next_start(scan_source(open_source([str(root)])), None)
    verified = verify(open_source([str(root)]), Run(clock=CLOCK, jobs=1))
    request = RebuildRequest(paths=(str(root),), as_of_ms=CLOCK.as_of_ms).checked()
    in_place = make_plan(request)
    elsewhere = make_plan(RebuildRequest(paths=(str(root),), as_of_ms=CLOCK.as_of_ms, out=str(scratch / "out")).checked())
    counts: dict[str, object] = {
        "scan": scanned.totals.missing,
        "verify": verified.counts.missing,
        "plan": plan_document(in_place, plan_counts(in_place)).totals.missing,
        "rebuild --dry-run": rebuild_document(rebuild(in_place, Run(jobs=1), dry_run=True), None).totals.missing,
        "rebuild --out": sum(not each.exists for plan in elsewhere.partitions for each in plan.boundaries),
    }
    verify_view = VerifyView(JudgedVerify(verified, scanned.status, verified.findings, 0.0), None, details=False)
    documents = []
    for name, value in (
        ("scan", members_of_document(scan_document(scanned, NO_REQUEST), scanned.findings)),
        ("verify", members_of_document(verify_view.document(), verified.findings)),
    ):
        path = scratch / f"{name}.json"
        path.write_text("".join(json_text(value)))
        documents.append(str(path))
    for chosen in (documents[:1], documents[1:], documents):
        page = make_report(chosen, str(scratch / "page.html"), None, partition_next_command).page
        counts[f"report of {len(chosen)}, {chosen[0][-9:]}"] = page_totals(page).missing_snapshots
    total = json.loads((scratch / "scan.json").read_text())["totals"]
    others = {(total["not_needed"], total["made_by_broker"])}
    others |= {(each.not_needed, each.made_by_broker) for each in (verified.counts, in_place.counts, elsewhere.counts)}
    assert len(others) == 1, others
    return counts


def agreed(root: Path, scratch: Path) -> int:
    counts = counted_by_each(root, scratch)
    assert len(set(counts.values())) == 1, counts
    (number,) = set(counts.values())
    assert isinstance(number, int)
    return number


LOG_DIRS = sorted(
    str(path.relative_to(FIXTURES))
    for path in {*FIXTURES.glob("*"), *FIXTURES.glob("damaged/*"), *FIXTURES.glob("kraft-cluster3/*")}
    if path.is_dir() and path.name not in ("damaged", "kraft-cluster3", "aiven-layout") and any(path.rglob("*.log"))
)

KNOWN = {"kafka27-killed": 3, "kafka27-mixed": 14, "kafka4-mixed": 0, "damaged/healthy": 0, "txn-state": 0, "kafka27-compacted": 0}
"""By hand, of the names and checkpoints: what is above the log start and, after a kill, at or below the recovery point."""


@pytest.mark.parametrize(
    "fixture",
    [
        # Those of which no count is known are counted in the full tier.
        each if each in (*KNOWN, "damaged/logs") else pytest.param(each, marks=pytest.mark.full)
        for each in LOG_DIRS
    ],
)
def test_every_command_counts_the_same_in_every_fixture(fixture: str, tmp_path: Path) -> None:
    number = agreed(FIXTURES / fixture, tmp_path)
    assert number == KNOWN.get(fixture, number)


@each_seed(scaled(20))
def test_every_command_counts_the_same_in_generated_directories(seed: int) -> None:
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        logs = _generated(rng, Path(place))
        before = agreed(logs, Path(place) / "before")
        made = make_plan(RebuildRequest(paths=(str(logs),), as_of_ms=CLOCK.as_of_ms, allow_unproven=True).checked())
        result = rebuild(made, Run(jobs=1))
        written = sum(each.action == "written" for partition in result.partitions for each in partition.boundaries)
        assert agreed(logs, Path(place) / "after") == before - written


def _generated(rng: random.Random, place: Path) -> Path:
    """Partitions of real brokers with snapshots taken away, in a clean, a killed or no broker's directory."""
    logs = copy_of(rng.choice(("kafka27-mixed", "kafka4-mixed")), place)
    topics = sorted(path for path in logs.iterdir() if path.is_dir())
    shutil.rmtree(topics.pop(rng.randrange(len(topics))))
    kind = rng.choice(("clean", "killed", "bare"))
    recovery, starts, cleaned = [], [], []
    for directory in topics:
        topic, _, number = directory.name.rpartition("-")
        bases = sorted(int(path.stem) for path in directory.glob("*.log"))
        for path in sorted(directory.glob("*.snapshot")):
            if rng.random() < 0.5:
                path.unlink()
                if rng.random() < 0.2:
                    path.mkdir()
        if rng.random() < 0.3:
            (directory / snapshot_name(bases[-1] + 1)).write_bytes(EMPTY_SNAPSHOT)
        if rng.random() < 0.3:
            (directory / f"{bases[-1]:020d}.log").write_bytes(b"")
        recovery.append(f"{topic} {number} {rng.choice(bases)}")
        if rng.random() < 0.3:
            starts.append(f"{topic} {number} {rng.choice(bases)}")
        if rng.random() < 0.2:
            cleaned.append(f"{topic} {number} {rng.choice(bases)}")
    for path in logs.iterdir():
        if path.is_file():
            path.unlink()
    if kind != "bare":
        files = {"recovery_point_offset_checkpoint": recovery} if kind == "killed" or rng.random() < 0.5 else {}
        files |= {"log_start_offset_checkpoint": starts, "cleaner_offset_checkpoint": cleaned}
        make_log_dir(
            logs, clean=kind == "clean", **{name: "\n".join(("0", str(len(rows)), *rows, "")) for name, rows in files.items()}
        )
    return logs


def test_a_running_broker_writes_the_snapshot_at_the_log_end_itself(tmp_path: Path) -> None:
    """``UnifiedLog.close`` takes a snapshot at the log end, and ``UnifiedLog.roll`` one at each later base offset."""
    (partition,) = open_source([str(copy_of("kafka27-mixed", tmp_path) / "mixed-0")]).partitions
    running = replace(partition, is_broker_running=True)
    assert reason_not_needed(running, 7637, is_log_end=False) is None
    at_end = reason_not_needed(running, 8231, is_log_end=True)
    assert at_end is not None
    assert at_end.kind is LeftOut.MADE_BY_BROKER
    assert not at_end.may_be_needed
