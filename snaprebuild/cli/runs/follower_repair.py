"""The work of the verb ``follower repair``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import ExpiryOptions, S3Options, SelectionOptions
from snaprebuild.cli.options.remote_storage import TierOptions
from snaprebuild.cli.render.followers import FollowerRepairView
from snaprebuild.cli.runs.remote_storage import announced, check_order, key_files, open_tier
from snaprebuild.cli.runs.run_settings import clock_at, run_of
from snaprebuild.cli.runs.sources import open_selected, selection_of
from snaprebuild.cli.streams import bytes_progress, notes_on_stderr
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.scan_storage import start_concerns
from snaprebuild.errors import UsageError
from snaprebuild.followers.check import check_replicas
from snaprebuild.followers.repair import refuse_live_broker, repair_plan, repair_replicas
from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path, noting_receipt
from snaprebuild.storage.store import is_object

__all__ = ["run_follower_repair"]


def run_follower_repair(
    *,
    store: str,
    path: str,
    tier_options: TierOptions,
    partitions: SelectionOptions,
    set_aside: bool,
    dry_run: bool,
    receipt: str | None,
    expiry: ExpiryOptions,
    jobs: int | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Writes the right snapshots into replicas, unless ``dry_run``."""
    out.begin({"--receipt": receipt}, private_key=key_files(tier_options))
    if is_object(path):
        raise UsageError("objects are never replaced or set aside: copy the replica to a disk", path=path)
    run = run_of(s3, clock=clock_at(expiry.as_of, expiry.expiration_ms), jobs=jobs)
    source = open_selected([path], None, selection_of(partitions), s3)
    check_order(store, source)
    if not dry_run:
        refuse_live_broker(source)
    tier = open_tier(store, s3, tier_options)
    started = time.perf_counter()
    check = check_replicas(source, tier, run, announce=announced)
    plan, refused = repair_plan(check, set_aside=set_aside)
    written = None
    if plan is not None and not dry_run:
        written = Receipt(default_receipt_path(None) if receipt is None else receipt, plan)
    size_bytes = 0 if plan is None else plan.min_read_bytes
    with notes_on_stderr(), noting_receipt(written), bytes_progress("replaying", size_bytes) as progress:
        repair = repair_replicas(check, plan, refused, run, dry_run=dry_run, receipt=written, progress=progress)
    elapsed_seconds = time.perf_counter() - started
    findings = [*repair.findings, *start_concerns(source, repair.findings)]
    return FollowerRepairView(repair, tier, findings, dry_run=dry_run, elapsed_seconds=elapsed_seconds)
