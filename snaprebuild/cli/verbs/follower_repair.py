"""The verb ``follower repair``."""

from __future__ import annotations

import time

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    ReceiptFile,
    S3Options,
    Topic,
    clock_at,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.rebuild import DryRun, SetAside
from snaprebuild.cli.options.remote_storage import FollowerDir, TierLocation, TierOptions, open_tier
from snaprebuild.cli.result import shown
from snaprebuild.cli.streams import bytes_progress, print_on_stderr
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["follower_repair"]


@verb()
def follower_repair(
    *,
    directory: FollowerDir,
    store: TierLocation,
    tier_options: TierOptions,
    topic: Topic = None,
    partition: Partition = None,
    set_aside: SetAside = False,
    dry_run: DryRun = False,
    receipt: ReceiptFile = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """WRITES the right snapshots into replicas that lost their producer state; wrong ones are replaced with --set-aside only.

    DIR and STORE are those of `follower check`. Stop the broker first. Each replica gets what remote storage has at its first
    local offset, and every snapshot above it anew, because a broker loads the newest. Nothing is written where the state is not
    proven, or where a broker would delete it (at or below the log start). `undo` takes it back. Exit code 1 if a snapshot
    stays wrong, 3 if one cannot be repaired; with --dry-run as if it had been written, so 0 if all would be right then.
    """
    from snaprebuild.cli.render.followers import FollowerRepairView
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.followers.check import check_replicas
    from snaprebuild.followers.repair import refuse_live_broker, repair_plan, repair_replicas
    from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
    from snaprebuild.storage.store import is_object

    out.begin({"--receipt": receipt}, private_key=tier_options.key_files)
    if is_object(directory):
        raise UsageError("objects are never replaced or set aside: copy the replica to a disk", path=directory)
    run = s3.run(clock=clock_at(as_of, expiration_ms), jobs=jobs)
    source = open_selected([directory], None, selection_of(topic, partition, None), s3)
    if not dry_run:
        refuse_live_broker(source)
    tier = open_tier(store, s3, tier_options)
    started = time.perf_counter()
    check = check_replicas(source, tier, run, announce=announced)
    plan, refused = repair_plan(check, set_aside=set_aside)
    written = None
    if plan is not None and not dry_run:
        written = Receipt(default_receipt_path(None) if receipt is None else receipt, plan)
    try:
        with bytes_progress("replaying", 0 if plan is None else plan.min_read_bytes) as progress:
            repair = repair_replicas(check, plan, refused, run, dry_run=dry_run, receipt=written, progress=progress)
    except BaseException:
        if written is not None and written.is_there:
            print_on_stderr(f"receipt of what was written: {shown(written.path)} (`snaprebuild undo` takes it back)")
        raise
    elapsed_seconds = time.perf_counter() - started
    findings = [*repair.findings, *start_concerns(source, repair.findings)]
    return FollowerRepairView(repair, tier, findings, dry_run=dry_run, elapsed_seconds=elapsed_seconds)
