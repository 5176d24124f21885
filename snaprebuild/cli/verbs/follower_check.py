"""The verb ``follower check``."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    as_of_ms,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.remote_storage import FollowerDir, LevelOption, RemoteLevel, TierLocation, TierOptions, open_tier
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.check import FollowerCheck

__all__ = ["follower_check"]

LOAD_NAMES = Load.__struct_fields__


@verb(Load)
def follower_check(
    *,
    directory: FollowerDir,
    store: TierLocation,
    tier_options: TierOptions,
    level: LevelOption = RemoteLevel.FULL,
    topic: Topic = None,
    partition: Partition = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: finds replicas that lost their producer state when they started from remote storage, and what they lost.

    DIR is a partition directory, a log directory, or any directory above them. STORE is a directory or s3://BUCKET/PREFIX with
    the objects. The right state at the first local offset is the snapshot of the copy that ends there, compared with a replay
    of the copies. Above it the replica's own segments are added. Producers that have expired at --as-of are no loss. Exit code
    1 if a replica lost producers or cannot be checked.
    """
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.followers.check import follower_check as look
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock

    out.begin(private_key=tier_options.key_files)
    clock = Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)
    tier = open_tier(store, s3, tier_options)
    source = open_selected([directory], None, selection_of(topic, partition, None), s3)
    started = time.perf_counter()
    check = look(source, tier, s3.run(clock=clock, jobs=jobs), replays_remote=level is RemoteLevel.FULL, announce=announced)
    seconds = time.perf_counter() - started
    return Result(
        lambda: _document(check, tier.location, level, seconds),
        [*check.findings, *start_concerns(source, check.findings)],
        lambda: _print(check),
        answer=lambda: _answer(check),
    )


def _document(check: FollowerCheck, root: str, level: RemoteLevel, seconds: float) -> doc.FollowerCheck:
    from snaprebuild.cli.render.remote_storage import replica_of
    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.check import ReplicaVerdict

    counts = Counter(replica.verdict for replica in check.replicas)
    return doc.FollowerCheck(
        store=root,
        level=level.value,
        verified=check.is_verified,
        as_of_ms=check.clock.as_of_ms,
        expiration_ms=check.clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        totals=msgspec.convert({verdict.value: counts[verdict] for verdict in ReplicaVerdict}, doc.ReplicaTotals),
        replicas=[replica_of(each) for each in check.replicas],
    )


def _answer(check: FollowerCheck) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import repeated_words
    from snaprebuild.findings import pluralize
    from snaprebuild.followers.check import ReplicaVerdict

    counts = Counter(replica.verdict for replica in check.replicas)
    verdict_counts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    live = "." if check.is_verified else "; which copies are live is unverified (--metadata-log)."
    answer = f"{pluralize(len(check.replicas), 'replica')}: {verdict_counts or 'none'}{live}"
    is_wrong = any(each.proven_wrong for replica in check.replicas for each in replica.snapshots)
    if not (is_wrong or counts[ReplicaVerdict.LOST]):
        return answer, []
    aside = ["--set-aside"] if is_wrong else []
    return answer, ["follower", "repair", *repeated_words("level", *LOAD_NAMES), *aside, "--dry-run"]


def _print(check: FollowerCheck) -> None:
    from snaprebuild.cli.render.remote_storage import print_lost, print_replicas

    if check.replicas:
        print_replicas("Replicas", check.replicas)
    print_lost(check.replicas)
