"""The verb ``follower check``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    clock_at,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.remote_storage import FollowerDir, LevelOption, RemoteLevel, TierLocation, TierOptions, open_tier
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View

__all__ = ["follower_check"]


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
) -> View:
    """Reads only: finds replicas that lost their producer state when they started from remote storage, and what they lost.

    DIR is a partition directory, a log directory, or any directory above them. STORE is a directory or s3://BUCKET/PREFIX with
    the objects. The right state at the first local offset is the snapshot of the copy that ends there, compared with a replay
    of the copies. Above it the replica's own segments are added. Producers that have expired at --as-of are no loss. Exit code
    1 if a replica lost producers or cannot be checked.
    """
    from snaprebuild.cli.render.followers import FollowerCheckView
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.followers.check import check_replicas

    out.begin(private_key=tier_options.key_files)
    clock = clock_at(as_of, expiration_ms)
    tier = open_tier(store, s3, tier_options)
    source = open_selected([directory], None, selection_of(topic, partition, None), s3)
    started = time.perf_counter()
    run = s3.run(clock=clock, jobs=jobs)
    check = check_replicas(source, tier, run, replays_remote=level is RemoteLevel.FULL, announce=announced)
    elapsed_seconds = time.perf_counter() - started
    findings = [*check.findings, *start_concerns(source, check.findings)]
    return FollowerCheckView(check, tier, findings, level=level, elapsed_seconds=elapsed_seconds)
