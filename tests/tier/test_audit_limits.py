"""Limits of a run, and objects that a listing lacks: what was read is reported, and nothing is concluded from what was not."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from budgets import TIER
from command import in_json
from faulty_store import FaultyStore
from manifests import AIVEN, FIXTURES, LONG_AGO

from snaprebuild.errors import ReadFailedError
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import Status
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.audit.partition_audit import SnapshotVerdict
from snaprebuild.tier.inventory.inventory import tier_inventory
from snaprebuild.tier.remote_store import CopyState, StoreAccess

REMOTE, LOGS = FIXTURES / "tiered-local" / "remote", FIXTURES / "tiered-local" / "logs"
CLOCK = Clock(1_795_132_800_000, 86_400_000)
HIDDEN = "00000000000000002181-"


@dataclass(frozen=True)
class PartialListing(LocalStore):
    """A store whose listing lacks some keys, and which answers requests for them, or fails."""

    hidden: str = HIDDEN
    fails: bool = False
    requests: list[str] = field(default_factory=list, compare=False)

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        return ((key, status) for key, status in LocalStore.list_below(self, location, name_prefix) if self.hidden not in key)

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        if self.hidden in location:
            self.requests.append(location)
            if self.fails:
                raise ReadFailedError("503 SlowDown", path=location)
        return LocalStore.read_end(self, location, count)


def test_what_a_listing_lacks_and_the_store_has_is_not_lost() -> None:
    store = PartialListing()
    audit = tier_audit(StoreAccess(StorePath(store, str(REMOTE)), metadata_logs=[str(LOGS)]), Run(clock=CLOCK, jobs=1))
    assert [copy.verdict for copy in audit.partitions[0].copies] == [SnapshotVerdict.RIGHT] * 12
    assert (exit_code_of(audit.findings), bool(store.requests)) == (0, True)
    inventory, _ = tier_inventory(StoreAccess(StorePath(store, str(REMOTE)), [str(LOGS)]))
    assert CopyState.LOST not in inventory.partitions[0].counts


def test_without_an_answer_nothing_is_lost() -> None:
    store = PartialListing(fails=True)
    audit = tier_audit(StoreAccess(StorePath(store, str(REMOTE)), metadata_logs=[str(LOGS)]), Run(clock=CLOCK, jobs=1))
    (unread,) = [copy for copy in audit.partitions[0].copies if copy.verdict is SnapshotVerdict.NOT_READ]
    assert "a request for these had no answer: 503 SlowDown" in unread.reason
    assert not [each for each in audit.findings if each.severity is Severity.DAMAGED]
    assert exit_code_of(audit.findings) == 5
    inventory, findings = tier_inventory(StoreAccess(StorePath(store, str(REMOTE)), [str(LOGS)]))
    assert CopyState.LOST not in inventory.partitions[0].counts
    assert exit_code_of(findings) == 5


def test_what_is_gone_is_lost_after_a_request(tmp_path: Path) -> None:
    shutil.copytree(REMOTE, tmp_path / "remote")
    for path in (tmp_path / "remote").rglob(f"{HIDDEN}*"):
        path.unlink()
    store = PartialListing()
    audit = tier_audit(StoreAccess(StorePath(store, str(tmp_path / "remote")), metadata_logs=[str(LOGS)]), Run(clock=CLOCK, jobs=1))
    assert len(store.requests) == 5, "one for each of its files"
    assert exit_code_of(audit.findings) == 4
    assert sum(copy.verdict is SnapshotVerdict.RIGHT for copy in audit.partitions[0].copies) > 5


@pytest.fixture
def bucket(faulty: FaultyStore) -> FaultyStore:
    root = AIVEN / "diseased" / "store"
    faulty.objects = {f"b/tier/{path.relative_to(root)}": path.read_bytes() for path in root.rglob("*") if path.is_file()}
    return faulty


@pytest.mark.parametrize("level", ["full", *(pytest.param(each, marks=pytest.mark.full) for each in ("reachable", "structure"))])
def test_a_limit_ends_the_run_with_what_was_read(bucket: FaultyStore, level: str) -> None:
    line = ("s3://b/tier", *LONG_AGO, "--level", level, "--set", "s3_path_style=true", "--s3-endpoint-url", bucket.endpoint)
    whole = in_json("tier audit", *line)
    needed = len(bucket.seen)
    judged = {copy["segment_id"]: copy["verdict"] for each in whole.document["partitions"] for copy in each["copies"]}
    before = 0
    for most in (needed // 3, needed - 1) if TIER == "quick" else (2, needed // 3, needed // 2, needed - 1):
        bucket.seen.clear()
        run = in_json("tier audit", *line, "--set", f"max_requests={most}", "--jobs", "1")
        assert (run.exit_code, run.codes["tier-limit"], "refused" in run.codes) == (1, 1, False)
        found = {copy["segment_id"]: copy for each in run.document["partitions"] for copy in each["copies"]}
        assert found.keys() == judged.keys()
        read = {name: copy for name, copy in found.items() if copy["verdict"] != "not-read"}
        if level == "full":
            assert all(copy["verdict"] == judged[name] for name, copy in read.items()), json.dumps(found)
        if level == "structure":  # the one that contradicts another, or decides between two, may be unread
            assert all(copy["verdict"] in (judged[name], "suspect", "unproven") for name, copy in read.items()), json.dumps(found)
        assert all("max_requests" in copy["reason"] for name, copy in found.items() if name not in read)
        assert len(read) >= before
        before = len(read)
    run = in_json("tier audit", *line, "--set", f"max_requests={needed}")
    assert (run.exit_code, "tier-limit" in run.codes) == (whole.exit_code, False)
