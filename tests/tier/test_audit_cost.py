"""Costs of an audit: requests as counted, cold storage classes refused unless somebody sets a limit."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from manifests import FIXTURES

from snaprebuild.errors import RefusedError
from snaprebuild.findings import Severity
from snaprebuild.followers.build import BuildRequest, plan_build
from snaprebuild.followers.check import ReplicaVerdict, check_replicas
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.private_keys import PrivateKeys
from snaprebuild.storage.store import OpenBytes, S3Settings, Status
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audit import tier_audit
from snaprebuild.tier.cost import AuditCost
from snaprebuild.tier.remote_store import StoreAccess, Tier, open_tier

ROOT = str(FIXTURES / "aiven-layout" / "plain" / "store")
CLOCK = Clock(1, 1)


@dataclass(frozen=True)
class ClassedStore(LocalStore):
    """Files that a listing shows a storage class of; what is asked for is noted."""

    storage_class: str
    asked: list[str] = field(default_factory=list, compare=False)

    def list_below(self, location: str, name_prefix: str = "") -> Iterator[tuple[str, Status]]:
        for key, status in LocalStore.list_below(self, location):
            same = {name: getattr(status, name) for name in ("st_size", "st_mtime_ns", "st_ino", "st_mode", "st_uid", "st_gid")}
            yield key, cast(Status, SimpleNamespace(**same, st_storage_class=self.storage_class))

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        self.asked.append(location)
        return LocalStore.read_small(self, location, bytes_max)

    def open_bytes(self, location: str, *more: Any, **named: Any) -> OpenBytes:
        # Its identity, where it is not known, and a range of objects that are as small as these.
        self.asked.extend([location] * (1 if more and more[0] is not None else 2))
        return LocalStore.open_bytes(self, location)


def announced(storage_class: str, **settings: Any) -> AuditCost:
    """The announcement of an audit that ends."""
    reported: list[AuditCost] = []
    store = ClassedStore(storage_class)
    audit = tier_audit(
        StoreAccess(StorePath(store, ROOT)), Run(clock=CLOCK, jobs=1, stores=S3Settings(**settings)), announce=reported.append
    )
    assert audit.cost == reported[0]
    assert any(each.read_bytes for each in audit.partitions)
    return reported[0]


def test_the_usual_class_costs_requests_alone() -> None:
    cost = announced("STANDARD")
    assert cost.cold == {}
    assert cost.dollars == pytest.approx(cost.requests * 0.0004 / 1000)


@pytest.mark.parametrize("name", ["plain", "diseased", "encrypted-zstd"])
@pytest.mark.parametrize("level", list(AuditLevel))
def test_as_many_requests_as_were_announced(name: str, level: AuditLevel) -> None:
    """In addition to the manifests, each of which is read once, and before anything else. The rest is asked for after it was announced."""
    store, before = ClassedStore("STANDARD"), list[str]()
    root, key = str(FIXTURES / "aiven-layout" / name / "store"), str(FIXTURES / "aiven-layout" / "keys" / "key1.private.pem")
    audit = tier_audit(
        StoreAccess(StorePath(store, root), private_keys=PrivateKeys.of([key])),
        Run(clock=CLOCK, jobs=1),
        level=level,
        announce=lambda _: before.extend(store.asked),
    )
    manifests = [str(path) for path in Path(root).rglob("*.rsm-manifest")]
    assert sorted(before) == sorted(manifests)
    assert audit.cost is not None
    assert len(store.asked) == len(manifests) + audit.cost.requests


@pytest.mark.parametrize("name", ["STANDARD_IA", "DEEP_ARCHIVE"])
def test_cold_classes_need_a_limit(name: str) -> None:
    store = ClassedStore(name)
    with pytest.raises(RefusedError, match=f"bytes in {name}.*max_read_bytes"):
        tier_audit(StoreAccess(StorePath(store, ROOT)), Run(clock=CLOCK, jobs=1))
    assert store.asked == []
    cost = announced(name, max_read_bytes=1 << 30)
    assert cost.cold == {name: cost.read_bytes}
    assert cost.dollars is not None
    assert cost.dollars > cost.read_bytes * 0.009 / 1e9


FOLLOWER = FIXTURES / "follower-lost-state"
AFTER = Clock(1_795_269_600_000, 86_400_000)


def cold_tier(**settings: Any) -> Tier:
    return open_tier(StoreAccess(StorePath(ClassedStore("GLACIER"), str(FOLLOWER / "remote"))), S3Settings(**settings))


def test_a_follower_is_not_built_from_cold_copies_without_a_limit() -> None:
    reported: list[AuditCost] = []
    with pytest.raises(RefusedError, match=r"bytes in GLACIER.*max_read_bytes"):
        plan_build(cold_tier(), BuildRequest("payments", 0), Run(clock=AFTER, jobs=1), announce=reported.append)
    plan = plan_build(
        cold_tier(max_read_bytes=1 << 30), BuildRequest("payments", 0), Run(clock=AFTER, jobs=1), announce=reported.append
    )
    logs = list((FOLLOWER / "remote").rglob("*.log"))
    assert [each.copies for each in reported] == [len(logs), len(logs)]
    assert reported[0].cold == {"GLACIER": reported[0].read_bytes}
    assert plan.state.read_bytes == sum(path.stat().st_size for path in logs)


def test_a_replica_is_not_checked_by_cold_copies_without_a_limit() -> None:
    source, reported = open_source([str(FOLLOWER / "node2")]), list[AuditCost]()
    (refused,) = check_replicas(source, cold_tier(), Run(clock=AFTER, jobs=1), announce=reported.append).replicas
    assert (refused.verdict, refused.read_bytes) == (ReplicaVerdict.UNKNOWN, 0)
    assert [each.severity for each in refused.findings if "max_read_bytes" in each.message] == [Severity.REFUSED]
    (looked_at,) = check_replicas(
        source, cold_tier(), Run(clock=AFTER, jobs=1), replays_remote=False, announce=reported.append
    ).replicas
    assert looked_at.remote is not None  # no segment is read
    (checked,) = check_replicas(
        source, cold_tier(max_read_bytes=1 << 30), Run(clock=AFTER, jobs=1), announce=reported.append
    ).replicas
    assert (checked.verdict, len(reported)) == (ReplicaVerdict.LOST, 2)


def test_a_class_of_unknown_price_has_none() -> None:
    cost = announced("EXPRESS_TIER_X")
    assert (cost.dollars, cost.storage_classes) == (None, {"EXPRESS_TIER_X": cost.read_bytes})
