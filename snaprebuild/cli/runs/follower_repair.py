"""The work of the verb ``follower repair``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.followers import FollowerRepairOptions
from snaprebuild.cli.render.followers import FollowerRepairView
from snaprebuild.cli.runs.remote_storage import announced, check_order, configured_store, key_files, open_tier
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


def run_follower_repair(store: str, path: str, options: FollowerRepairOptions, out: OutputOptions, s3: S3Options) -> View:
    """Writes the right snapshots into replicas, unless ``dry_run``."""
    out.begin(new_files={"--receipt": options.receipt}, read={"private key": key_files(options)})
    configured = configured_store(store, s3, options, writes=True)
    options = configured.options(options)
    s3 = configured.s3
    if is_object(path):
        raise UsageError("objects are never replaced or set aside: copy the replica to a disk", path=path)
    run = run_of(s3, clock=clock_at(options.as_of, options.expiration_ms), jobs=options.jobs)
    source = open_selected([path], None, selection_of(options), s3)
    check_order(store, source)
    if not options.dry_run:
        refuse_live_broker(source)
    tier = open_tier(store, s3, options)
    started = time.perf_counter()
    check = check_replicas(source, tier, run, announce=announced)
    plan, refused = repair_plan(check, set_aside=options.set_aside)
    written = None
    if plan is not None and not options.dry_run:
        receipt_path = default_receipt_path(None) if options.receipt is None else options.receipt
        written = Receipt(receipt_path, plan)
    size_bytes = 0 if plan is None else plan.min_read_bytes
    with notes_on_stderr(), noting_receipt(written), bytes_progress("replaying", size_bytes) as progress:
        repair = repair_replicas(check, plan, refused, run, dry_run=options.dry_run, receipt=written, progress=progress)
    elapsed_seconds = time.perf_counter() - started
    findings = [*repair.findings, *start_concerns(source, repair.findings)]
    return FollowerRepairView(repair, tier, findings, dry_run=options.dry_run, elapsed_seconds=elapsed_seconds)
