"""The work of the verb ``follower check``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerCheckOptions
from snaprebuild.cli.options.remote_storage import RemoteLevel
from snaprebuild.cli.render.followers import FollowerCheckView
from snaprebuild.cli.runs.remote_storage import announced, check_order, configured_store, key_files, open_tier
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import open_selected, selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import start_concerns
from snaprebuild.followers.check import check_replicas

__all__ = ["run_follower_check"]


def run_follower_check(store: str, path: str, options: FollowerCheckOptions, out: MeasuredOutput, s3: S3Options) -> View:
    """Compares the producer state of replicas with that of remote storage."""
    out.begin(read={"private key": key_files(options)})
    configured = configured_store(store, s3, options, writes=False)
    options = configured.options(options)
    s3 = configured.s3
    clock = clock_at(options.as_of, options.expiration_ms)
    source = open_selected([path], None, selection_of(options), s3)
    check_order(store, source)
    tier = open_tier(store, s3, options)
    started = time.perf_counter()
    run = run_of(s3, clock=clock, jobs=options.jobs)
    check = check_replicas(source, tier, run, replays_remote=options.proof is RemoteLevel.FULL, announce=announced)
    elapsed_seconds = time.perf_counter() - started
    findings = [*check.findings, *start_concerns(source, check.findings)]
    return FollowerCheckView(check, tier, findings, level=options.proof, elapsed_seconds=elapsed_seconds)
