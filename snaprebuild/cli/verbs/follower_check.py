"""The verb ``follower check``."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    OutputFormat,
    OutputOption,
    Partition,
    PrivateKey,
    Report,
    S3Options,
    Topic,
    Verbose,
    as_of_ms,
    key_files,
    open_selected,
    selection_of,
    takes_s3,
)
from snaprebuild.cli.options.follower import (
    LevelOption,
    RemoteLevel,
    open_tier,
    print_lost,
    print_replicas,
    replica_json,
)
from snaprebuild.cli.options.io_limits import reads_gently
from snaprebuild.cli.verbs.tier_audit import announced
from snaprebuild.cli.verbs.tier_inventory import KeyPrefix, MetadataLog, TierLocation

if TYPE_CHECKING:
    from snaprebuild.followers.check import FollowerCheck

__all__ = ["FollowerDir", "follower_check"]

FollowerDir = Annotated[str, typer.Argument(metavar="DIR", help="Partition directory or log directory of a replica.")]


@reads_gently
@takes_s3
def follower_check(
    s3: S3Options,
    directory: FollowerDir,
    store: TierLocation,
    metadata_log: MetadataLog = None,
    level: LevelOption = RemoteLevel.FULL,
    key_prefix: KeyPrefix = "",
    private_key: PrivateKey = None,
    topic: Topic = None,
    partition: Partition = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    output: OutputOption = OutputFormat.TABLE,
    report: Report = None,
    verbose: Verbose = 0,
) -> None:
    """Reads only: finds replicas that lost their producer state when they started from remote storage, and what they lost.

    DIR is a partition directory, a log directory, or any directory above them. STORE is a directory or s3://BUCKET/PREFIX with
    the objects. What is right at the first local offset is the snapshot of the copy that ends there, held against a replay of
    the copies; above it, the replica's own segments on top. Producers that have expired at --as-of are no loss. Exit code 1
    where a replica lost any, or cannot be checked.
    """
    from snaprebuild.cli.result import begin, leave, verdict_document
    from snaprebuild.followers.check import follower_check as look
    from snaprebuild.replay.expiry import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.window_proof import Clock

    begin(verbose, {"--report": report}, private_key=key_files(private_key))
    clock = Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)
    tier = open_tier(store, s3, metadata_log, private_key, key_prefix)
    source = open_selected([directory], None, selection_of(topic, partition, None), s3)
    started = time.perf_counter()
    check = look(source, tier, clock, replays_remote=level is RemoteLevel.FULL, jobs=jobs, announce=announced)
    seconds = time.perf_counter() - started
    leave(
        lambda: verdict_document("follower-check", 1, _body(check, tier.root, level, seconds), check.findings),
        check.findings,
        as_json=output is OutputFormat.JSON,
        show=lambda: _print(check),
        report=report,
        everything=verbose > 0,
    )


def _body(check: FollowerCheck, root: str, level: RemoteLevel, seconds: float) -> dict[str, object]:
    from snaprebuild.followers.check import ReplicaVerdict

    counts = Counter(replica.verdict for replica in check.replicas)
    return {
        "store": root,
        "level": level.value,
        "verified": check.has_metadata,
        "as_of_ms": check.clock.as_of_ms,
        "expiration_ms": check.clock.expiration_ms,
        "seconds": round(seconds, 4),
        "totals": {verdict.value: counts[verdict] for verdict in ReplicaVerdict},
        "replicas": [replica_json(each) for each in check.replicas],
    }


def _print(check: FollowerCheck) -> None:
    from snaprebuild.cli.result import print_text
    from snaprebuild.findings import counted

    print_replicas("Replicas", check.replicas)
    print_lost(check.replicas)
    counts = Counter(replica.verdict for replica in check.replicas)
    told = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    live = "" if check.has_metadata else "; which copies are live is unverified"
    print_text(f"{counted(len(check.replicas), 'replica')}: {told or 'none'}{live}")
