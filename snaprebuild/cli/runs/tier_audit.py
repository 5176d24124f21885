"""The work of the verb ``tier audit``."""

from __future__ import annotations

import time

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import ExpiryOptions, S3Options, SelectionOptions
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.render.tier import TierAuditView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.remote_storage import announced, key_files, private_keys, tier_root
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import SNAPSHOTS_ALONE, local_start_concerns
from snaprebuild.cluster.source_check.metadata_logs import MetadataLogs
from snaprebuild.errors import UsageError
from snaprebuild.storage.store import absolute
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit import audit
from snaprebuild.tier.audit.window import read_local_starts

__all__ = ["run_tier_audit"]


def run_tier_audit(
    *,
    store: str,
    partitions: SelectionOptions,
    tier_options: TierOptions,
    level: AuditLevel,
    local_log_start: list[str] | None,
    log_dir: list[str] | None,
    metadata: str | None,
    expiry: ExpiryOptions,
    jobs: int | None,
    engine: EngineOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Compares the snapshots in remote storage with a replay."""
    out.begin(private_key=key_files(tier_options))
    check_directories([store, *(tier_options.metadata_log or []), *(log_dir or [])])
    check_metadata(metadata)
    if (local_log_start or log_dir) and level is not AuditLevel.REACHABLE:
        raise UsageError("--local-log-start and --log-dir go with --level reachable")
    keys = private_keys(tier_options)
    clock = clock_at(expiry.as_of, expiry.expiration_ms)
    root, prefix = tier_root(store, s3, tier_options)
    run = run_of(s3, clock=clock, jobs=jobs)
    cluster = None if metadata is None else MetadataLogs(absolute(metadata), run).named()
    started = time.perf_counter()
    with engine_of(engine) as chosen:
        result = audit.tier_audit(
            root,
            run,
            level=level,
            selection=selection_of(partitions),
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
