"""The work of the verb ``tier audit``."""

from __future__ import annotations

import time

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.metadata import check_metadata
from snaprebuild.cli.options.tier_audit import AuditOptions
from snaprebuild.cli.render.tier import TierAuditView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.remote_storage import announced, key_files, private_keys, store_access
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


def run_tier_audit(store: str, options: AuditOptions, engine: EngineOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Compares the snapshots in remote storage with a replay."""
    out.begin(private_key=key_files(options))
    check_directories([store, *(options.metadata_log or []), *(options.log_dir or [])])
    check_metadata(options.metadata)
    if (options.local_log_start or options.log_dir) and options.level is not AuditLevel.REACHABLE:
        raise UsageError("--local-log-start and --log-dir go with --level reachable")
    keys = private_keys(options)
    clock = clock_at(options.as_of, options.expiration_ms)
    access = store_access(store, s3, options, keys)
    run = run_of(s3, clock=clock, jobs=options.jobs)
    cluster = None if options.metadata is None else MetadataLogs(absolute(options.metadata), run).named()
    starts = None
    if options.local_log_start or options.log_dir:
        starts = read_local_starts(options.local_log_start or (), options.log_dir or (), run)
    started = time.perf_counter()
    with engine_of(engine) as chosen:
        result = audit.tier_audit(
            access,
            run,
            level=options.level,
            selection=selection_of(options),
            engine=lambda size_bytes: chosen.reading(size_bytes, None),
            announce=announced,
            local_starts=starts,
            cluster=cluster,
        )
    seconds = time.perf_counter() - started
    concerns = local_start_concerns(options.log_dir, run, without=SNAPSHOTS_ALONE) if options.log_dir else []
    return TierAuditView(result, clock, seconds, concerns)
