"""The work of the verb ``follower check``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import ExpiryOptions, S3Options, SelectionOptions
from snaprebuild.cli.options.remote_storage import RemoteLevel, TierOptions
from snaprebuild.cli.render.followers import FollowerCheckView
from snaprebuild.cli.runs.remote_storage import announced, check_order, key_files, open_tier
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import open_selected, selection_of
from snaprebuild.cli.verb import MeasuredOutput
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import start_concerns
from snaprebuild.followers.check import check_replicas

__all__ = ["run_follower_check"]


def run_follower_check(
    *,
    store: str,
    path: str,
    tier_options: TierOptions,
    level: RemoteLevel,
    partitions: SelectionOptions,
    expiry: ExpiryOptions,
    jobs: int | None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Compares the producer state of replicas with that of remote storage."""
    out.begin(private_key=key_files(tier_options))
    clock = clock_at(expiry.as_of, expiry.expiration_ms)
    tier = open_tier(store, s3, tier_options)
    source = open_selected([path], None, selection_of(partitions), s3)
    check_order(store, source)
    started = time.perf_counter()
    run = run_of(s3, clock=clock, jobs=jobs)
    check = check_replicas(source, tier, run, replays_remote=level is RemoteLevel.FULL, announce=announced)
    elapsed_seconds = time.perf_counter() - started
    findings = [*check.findings, *start_concerns(source, check.findings)]
    return FollowerCheckView(check, tier, findings, level=level, elapsed_seconds=elapsed_seconds)
