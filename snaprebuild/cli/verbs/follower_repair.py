"""The verb ``follower repair``."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    ReceiptFile,
    S3Options,
    Topic,
    as_of_ms,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.rebuild import DryRun, SetAside
from snaprebuild.cli.options.remote_storage import FollowerDir, TierLocation, TierOptions, open_tier
from snaprebuild.cli.streams import print_on_stderr
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents import followers as doc
    from snaprebuild.followers.check import CheckedReplica
    from snaprebuild.followers.repair import FollowerRepair

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
) -> Result:
    """WRITES the right snapshots into replicas that lost their producer state; wrong ones are replaced with --set-aside only.

    DIR and STORE are those of `follower check`. Stop the broker first. Each replica gets what remote storage has at its first
    local offset, and every snapshot above it anew, because a broker loads the newest. Nothing is written where the state is not
    proven, or where a broker would delete it (at or below the log start). `undo` takes it back. Exit code 1 if a snapshot
    stays wrong, 3 if one cannot be repaired; with --dry-run as if it had been written, so 0 if all would be right then.
    """
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.cli.result import shown
    from snaprebuild.cli.streams import bytes_progress
    from snaprebuild.cluster.scan_storage import start_concerns
    from snaprebuild.followers.check import follower_check
    from snaprebuild.followers.repair import follower_repair as carry_out
    from snaprebuild.followers.repair import refuse_live_broker, repair_plan
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock
    from snaprebuild.snapshots.receipts.receipt import Receipt, default_receipt_path
    from snaprebuild.storage.store import is_object

    out.begin({"--receipt": receipt}, private_key=tier_options.key_files)
    if is_object(directory):
        raise UsageError("objects are never replaced or set aside: copy the replica to a disk", path=directory)
    run = s3.run(clock=Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS), jobs=jobs)
    source = open_selected([directory], None, selection_of(topic, partition, None), s3)
    if not dry_run:
        refuse_live_broker(source)
    tier = open_tier(store, s3, tier_options)
    started = time.perf_counter()
    check = follower_check(source, tier, run, announce=announced)
    plan, refused = repair_plan(check, set_aside=set_aside)
    kept = None
    if plan is not None and not dry_run:
        kept = Receipt(default_receipt_path(None) if receipt is None else receipt, plan)
    try:
        with bytes_progress("replaying", 0 if plan is None else plan.min_read_bytes) as progress:
            repair = carry_out(check, plan, refused, run, dry_run=dry_run, receipt=kept, progress=progress)
    except BaseException:
        if kept is not None and kept.is_there:
            print_on_stderr(f"receipt of what was written: {shown(kept.path)} (`snaprebuild undo` takes it back)")
        raise
    seconds = time.perf_counter() - started
    return Result(
        lambda: _document(repair, tier.location, dry_run, seconds),
        [*repair.findings, *start_concerns(source, repair.findings)],
        lambda: _print(repair, dry_run),
        answer=lambda: _answer(repair, dry_run),
    )


def _document(repair: FollowerRepair, root: str, dry_run: bool, seconds: float) -> doc.FollowerRepair:
    from snaprebuild.documents import followers as doc
    from snaprebuild.snapshots.destination.boundary_result import ActionTotals

    check = repair.check
    return doc.FollowerRepair(
        store=root,
        verified=check.is_verified,
        as_of_ms=check.clock.as_of_ms,
        expiration_ms=check.clock.expiration_ms,
        elapsed_seconds=round(seconds, 4),
        dry_run=dry_run,
        receipt=None if repair.result is None else repair.result.receipt,
        takes_effect="when a broker next loads the log, at its start",
        totals=ActionTotals(**_totals(repair)),
        replicas=[_replica(repair, each) for each in check.replicas],
    )


def _replica(repair: FollowerRepair, replica: CheckedReplica) -> doc.RepairedReplica:
    from snaprebuild.cli.render.remote_storage import replica_of
    from snaprebuild.documents import followers as doc

    result = repair.of(replica)
    return doc.RepairedReplica(
        **msgspec.structs.asdict(replica_of(replica)),
        repaired=repair.is_repaired(replica),
        boundaries=[] if result is None else result.boundaries,
    )


def _totals(repair: FollowerRepair) -> Counter[str]:
    partitions = () if repair.result is None else repair.result.partitions
    return Counter(boundary.action for partition in partitions for boundary in partition.boundaries)


def _answer(repair: FollowerRepair, dry_run: bool) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import repeated_words, unless_unread
    from snaprebuild.findings import pluralize

    totals = _totals(repair)
    what = ", ".join(f"{count} {action.replace('_', ' ')}" for action, count in totals.items())
    dry = "Dry run: nothing was written. " if dry_run else ""
    answer = (
        f"{dry}{pluralize(len(repair.check.replicas), 'replica')}: {what or unless_unread('nothing to repair', repair.findings)}."
    )
    if dry_run and totals["would_write"]:
        return answer, ["follower", "repair", *repeated_words("dry_run")]
    if totals["written"]:
        answer += " They take effect when the broker next starts."
    return answer, ["follower", "check", *repeated_words("dry_run", "set_aside", "receipt")] if totals else []


def _print(repair: FollowerRepair, dry_run: bool) -> None:
    from snaprebuild.cli.render.remote_storage import print_replicas
    from snaprebuild.cli.result import print_table, print_undo

    if repair.check.replicas:
        print_replicas("Replicas, as they were", repair.check.replicas)
    rows = []
    for partition in () if repair.result is None else repair.result.partitions:
        for each in partition.boundaries:
            klass = "-" if each.snapshot_class is None else each.snapshot_class.value
            before = "-" if each.comparison is None else each.comparison.found_entries
            name = partition.plan.source.topic_partition
            rows.append((name, each.offset, each.action.replace("_", " "), klass, before, each.entries, each.set_aside or "-"))
    if rows:
        columns = ("partition", "offset", "done", "class", "had", "producers", "the old one is now")
        title = "What would be written" if dry_run else "Snapshots"
        print_table(title, columns, rows, right=("offset", "had", "producers"), drop=("had", "producers", "class"))
    print_undo(None if repair.result is None else repair.result.receipt)
