"""The work of the verb ``tier audit``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.engine import EngineOptions
from snaprebuild.cli.options.tier_audit import TierAuditOptions
from snaprebuild.cli.render.tier import TierAuditView
from snaprebuild.cli.runs.engine_choice import engine_of
from snaprebuild.cli.runs.judged_audit import AuditRequest, judged_audit
from snaprebuild.cli.runs.remote_storage import announced, key_files
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View

__all__ = ["run_tier_audit"]


def run_tier_audit(store: str, options: TierAuditOptions, engine: EngineOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Compares the snapshots in remote storage with a replay."""
    out.begin(private_key=key_files(options))
    request = AuditRequest(
        store=store,
        level=options.level,
        selection=selection_of(options),
        metadata_logs=tuple(options.metadata_log or ()),
        key_prefix=options.key_prefix,
        private_keys=tuple(options.private_key),
        local_log_starts=tuple(options.local_log_start or ()),
        log_dirs=tuple(options.log_dir or ()),
        metadata=options.metadata,
        ledger=options.ledger,
    ).checked()
    run = run_of(s3, clock=clock_at(options.as_of, options.expiration_ms), jobs=options.jobs)
    with engine_of(engine) as chosen:
        judged = judged_audit(request, run, engine=lambda size_bytes: chosen.reading(size_bytes, None), announce=announced)
    return TierAuditView(judged.audit, run.clock, judged.elapsed_seconds, judged.start_concerns)
