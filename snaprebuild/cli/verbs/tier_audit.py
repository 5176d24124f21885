"""The verb ``tier audit``."""

from __future__ import annotations

import time
from typing import Annotated

from snaprebuild.cli.engine_choice import engine_of
from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    check_directories,
    clock_at,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions, opened_tier
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError
from snaprebuild.tier import AuditLevel

__all__ = ["tier_audit"]


@verb()
def tier_audit(
    *,
    store: TierLocation,
    topic: Topic = None,
    partition: Partition = None,
    tier_options: TierOptions,
    level: Annotated[
        AuditLevel,
        option(
            "--level",
            short="full: replay every segment",
            details="reachable: replay one --expiration-ms, for the snapshots from which a follower may still start. structure: "
            "parse manifests and snapshots only.",
            default="full",
        ),
    ] = AuditLevel.FULL,
    local_log_start: Annotated[
        list[str] | None,
        option(
            "--local-log-start",
            metavar="TOPIC-PARTITION=OFFSET",
            short="First offset on the leader's disk, for each partition; repeatable",
            details="For --level reachable.",
            default="none, only the last copy counts as reachable",
        ),
    ] = None,
    log_dir: Annotated[
        list[str] | None,
        option(
            "--log-dir",
            metavar="DIR",
            short="Log directory with the first offset on disk, best the leader's; repeatable",
            details="For --level reachable.",
            default="none",
        ),
    ] = None,
    metadata: Annotated[
        str | None,
        option(
            "--metadata",
            metavar="DIR",
            short="KRaft metadata log of the cluster: __cluster_metadata-0 of any node, or a directory that holds it, also as "
            "s3://BUCKET/PREFIX",
            details="Producer ids in remote storage are compared with it.",
            default="none, they are not compared",
        ),
    ] = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: compares each producer snapshot in remote storage with a replay of the segments there.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. For each
    wrong snapshot it shows what a follower that starts from it would do. Without --metadata-log all complete copies count as
    live. If remote storage begins above offset 0, earlier producers are unknown, and a snapshot from which all later ones
    follow is consistent. Exit code 1 if a snapshot is wrong, suspect, unproven or not read, 4 if one does not parse.
    """
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cli.render.tier import TierAuditView
    from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, local_start_concerns
    from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
    from snaprebuild.storage.store import absolute
    from snaprebuild.tier.audit import audit
    from snaprebuild.tier.audit.reachable import read_local_starts

    out.begin(private_key=tier_options.key_files)
    check_directories([store, *(tier_options.metadata_log or []), *(log_dir or [])])
    check_metadata(metadata)
    if (local_log_start or log_dir) and level is not AuditLevel.REACHABLE:
        raise UsageError("--local-log-start and --log-dir go with --level reachable")
    keys = tier_options.keys()
    clock = clock_at(as_of, expiration_ms)
    root, prefix = opened_tier(store, s3, tier_options.key_prefix)
    run = s3.run(clock=clock, jobs=jobs)
    cluster = None if metadata is None else MetadataLogs(absolute(metadata), run).named()
    started = time.perf_counter()
    with engine_of(engine) as chosen:
        result = audit.tier_audit(
            root,
            run,
            level=level,
            selection=selection_of(topic, partition, None),
            metadata_logs=tier_options.metadata_log or (),
            private_keys=keys,
            key_prefix=prefix,
            engine=lambda size_bytes: chosen.reading(size_bytes, None),
            announce=announced,
            local_starts=read_local_starts(local_log_start or (), log_dir or (), run),
            cluster=cluster,
        )
    seconds = time.perf_counter() - started
    return TierAuditView(result, clock, seconds, local_start_concerns(log_dir or (), run, without=SNAPSHOTS_ALONE))
