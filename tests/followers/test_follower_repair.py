"""A replica that moved on between the check and the plan gets nothing: what was found out belongs to its old first segment."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from log_dirs import snapshot_name, tree
from manifests import FIXTURES

from snaprebuild.cli.options.remote_storage import RemoteLevel
from snaprebuild.cli.render.followers import FollowerCheckView, FollowerRepairView
from snaprebuild.findings import Finding, Severity
from snaprebuild.followers.check import ReplicaCheck, check_replicas
from snaprebuild.followers.repair import repair_plan, repair_replicas
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.remote_store import StoreAccess, open_tier

LOST = FIXTURES / "follower-lost-state"
MINUTES_AFTER = 1_795_269_600_000  # 2026-11-21T14:00:00Z


@pytest.fixture
def node(tmp_path: Path) -> Path:
    return Path(shutil.copytree(LOST / "node2", tmp_path / "node2"))


RUN = Run(clock=Clock(MINUTES_AFTER, DEFAULT_EXPIRATION_MS), jobs=1)


def checked(*nodes: Path, remote: Path = LOST / "remote") -> ReplicaCheck:
    tier = open_tier(StoreAccess(StorePath(LOCAL, str(remote))))
    return check_replicas(open_source([str(node) for node in nodes]), tier, RUN)


def deletes_its_first_segment(node: Path) -> None:
    """Deletes a segment, as retention does on a broker that continues."""
    for path in (node / "payments-0").glob(f"{561:020d}.*"):
        path.unlink()


def takes_a_snapshot(node: Path) -> None:
    (node / "payments-0" / snapshot_name(900)).write_bytes((node / "payments-0" / snapshot_name(561)).read_bytes())


def moves_its_log_start(node: Path) -> None:
    (node / "log-start-offset-checkpoint").write_text("0\n1\npayments 0 400\n")


def is_deleted(node: Path) -> None:
    """Its name stays, for a new one of the topic."""
    shutil.rmtree(node / "payments-0")
    (node / "payments-0").mkdir()


def test_as_it_was_checked(node: Path) -> None:
    plan, refused = repair_plan(checked(node), set_aside=True)
    assert refused == ()
    assert plan is not None
    assert plan.partitions[0].boundaries[0].offset == 561


@pytest.mark.parametrize("moves", [deletes_its_first_segment, takes_a_snapshot, moves_its_log_start, is_deleted])
def test_a_replica_that_moved_gets_nothing(node: Path, moves: object) -> None:
    check = checked(node)
    assert callable(moves)
    moves(node)
    before = tree(node)
    plan, refused = repair_plan(check, set_aside=True)
    assert plan is None
    (finding,) = refused
    assert (finding.code, finding.offset, "changed since it was checked" in finding.message) == ("follower-not-repaired", 561, True)
    assert tree(node) == before


def _has_a_foreign_directory(node: Path) -> None:
    (node / "backup").mkdir()


def _ends_with_zeros(node: Path) -> None:
    with max((node / "payments-0").glob("*.log")).open("ab") as file:
        file.write(bytes(4096))


@pytest.mark.parametrize("fault", [_has_a_foreign_directory, _ends_with_zeros])
def test_nothing_is_written_where_the_start_loses_records_or_fails(node: Path, fault: Callable[[Path], None]) -> None:
    """The rule of ``rebuild`` in place."""
    fault(node)
    plan, refused = repair_plan(checked(node), set_aside=True)
    assert plan is None
    assert [finding.severity for finding in refused] == [Severity.REFUSED]


@pytest.mark.parametrize("data", [b"", b"\0\1\0\0\0\0\0\0\0\0"])
def test_a_repair_leaves_a_wrong_snapshot_in_remote_storage_a_fault(data: bytes, node: Path, tmp_path: Path) -> None:
    """The replica is repaired, and the next follower still starts from the wrong snapshot."""
    remote = Path(shutil.copytree(LOST / "remote", tmp_path / "remote"))
    (snapshot,) = remote.rglob(f"{508:020d}-*.snapshot")
    snapshot.write_bytes(data)
    check = checked(node, remote=remote)
    wrong_files = sum(each.proven_wrong for each in check.replicas[0].snapshots)
    assert check.status(check.findings).wrong == wrong_files + 1 > 1, "those of the replica, and the one in remote storage"
    plan, refused = repair_plan(check, set_aside=True)
    for dry_run in (True, False):
        repair = repair_replicas(check, plan, refused, RUN, dry_run=dry_run)
        assert repair.is_repaired(check.replicas[0])
        status = repair.status(repair.findings)
        assert (status.word, status.wrong) == ("wrong", 1)
        assert [each.code for each in repair.findings].count("tier-wrong-snapshot") == 1
    after = checked(node, remote=remote)
    assert (after.status(after.findings).word, after.status(after.findings).wrong) == ("wrong", 1)


def test_a_document_counts_what_the_command_did_not_read(node: Path) -> None:
    """Findings about the start of the broker are of the command: the document says with them what its first line says."""
    tier = open_tier(StoreAccess(StorePath(LOCAL, str(LOST / "remote"))))
    check = checked(node)
    plan, refused = repair_plan(check, set_aside=True)
    repair = repair_replicas(check, plan, refused, RUN, dry_run=True)
    assert repair.status(repair.findings).word == "healthy"
    unread = Finding("storage-failed", Severity.STORAGE, str(node / "meta.properties"), "cannot be read", is_unread=True)
    checks = FollowerCheckView(check, tier, [*check.findings, unread], level=RemoteLevel.FULL, elapsed_seconds=0)
    repairs = FollowerRepairView(repair, tier, [*repair.findings, unread], dry_run=True, elapsed_seconds=0)
    assert (checks.document().counts.unread, repairs.document().counts.unread) == (1, 1)
    assert repairs.document().status == "unknown"
