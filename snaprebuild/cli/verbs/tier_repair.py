"""The verb ``tier repair``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from snaprebuild.cli.options.common import (
    AllowUnverified,
    AsOf,
    ExpirationMs,
    Jobs,
    Partition,
    S3Options,
    Topic,
    as_of_ms,
    selection_of,
)
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions, opened_tier
from snaprebuild.cli.render.tier_undo import EFFECT, repair_totals
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.documents import tier as doc
    from snaprebuild.snapshots.engine.clock import Clock
    from snaprebuild.tier.repair.repair import RepairedCopy, TierRepair

__all__ = ["tier_repair"]


@verb()
def tier_repair(
    *,
    store: TierLocation,
    topic: Topic = None,
    partition: Partition = None,
    tier_options: TierOptions,
    allow_unverified: AllowUnverified = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written, and write nothing. Default: write it.")
    ] = False,
    receipt: Annotated[
        str | None,
        typer.Option(
            "--receipt",
            metavar="FILE",
            help="Where to record the repair for `undo`; never replaced. Default: a new file in $XDG_STATE_HOME/snaprebuild "
            "(~/.local/state/snaprebuild). If that is in a log directory or cannot be written to: the current directory.",
        ),
    ] = None,
    expiration_ms: ExpirationMs = None,
    as_of: AsOf = None,
    jobs: Jobs = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """WRITES the right producer snapshots into remote storage, for copies of segments whose snapshot is wrong.

    STORE is a directory or s3://BUCKET/PREFIX with the objects of Aiven's plugin. The command audits it first, and
    repairs only what the segments there prove. It appends the right snapshot to .indexes, and then changes the manifest to name it.
    Each write fails if the object has changed. After an interruption, run the same command again. Exit code 1 if a wrong snapshot
    stays, 3 if one was refused.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cli.render.remote_storage import announced
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock

    out.begin(private_key=tier_options.key_files, receipt=receipt)
    check_paths([store, *(tier_options.metadata_log or [])], receipt=receipt)
    keys = tier_options.keys()
    clock = Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)
    root, prefix = opened_tier(store, s3, tier_options.key_prefix)
    run = s3.run(clock=clock, jobs=jobs)
    from snaprebuild.snapshots.receipts.receipt import default_receipt_path
    from snaprebuild.tier.repair.repair import tier_repair as repair

    result = repair(
        root,
        run,
        selection=selection_of(topic, partition, None),
        metadata_logs=tier_options.metadata_log or (),
        private_keys=keys,
        key_prefix=prefix,
        announce=announced,
        allow_unverified=allow_unverified,
        undo_path=None if dry_run else receipt or default_receipt_path(None),
    )
    return Result(lambda: _document(result, clock), result.findings, lambda: _print(result), answer=lambda: _answer(result))


def _document(result: TierRepair, clock: Clock) -> doc.TierRepair:
    from snaprebuild.documents import tier as doc

    return doc.TierRepair(
        store=result.audit.root,
        dry_run=result.is_dry_run,
        undone_receipt=None,
        receipt=result.undo_file,
        verified=result.audit.is_verified,
        as_of_ms=clock.as_of_ms,
        expiration_ms=clock.expiration_ms,
        totals=repair_totals([each.action for each in result.copies]),
        copies=[_copy(each) for each in result.copies],
        effect=EFFECT if _is_any(result) else (),
    )


def _none_wrong(result: TierRepair) -> str:
    from snaprebuild.findings import pluralize
    from snaprebuild.tier.audit.result import Verdict

    copies = [copy for partition in result.audit.partitions for copy in partition.copies]
    unread = sum(copy.verdict is Verdict.NOT_READ for copy in copies)
    if unread:
        return f"{pluralize(unread, 'snapshot')} of {len(copies)} not read; none of the others is wrong"
    return "No snapshot is wrong"


def _is_any(result: TierRepair) -> bool:
    return any(each.action.value in ("repaired", "would-repair", "unknown") for each in result.copies)


def _copy(repaired: RepairedCopy) -> doc.RepairedCopy:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import tier as doc
    from snaprebuild.storage.partition_names import named

    partition = repaired.partition
    audited = repaired.audited
    place = repaired.place
    return doc.RepairedCopy(
        **named(partition.topic, partition.partition),
        topic_id=uuid_to_text(partition.topic_id),
        segment_id=uuid_to_text(audited.segment_id),
        start_offset=audited.start_offset,
        end_offset=audited.end_offset,
        action=repaired.action.value,
        reason=repaired.why,
        verdict=audited.verdict.value,
        entries=audited.entries,
        snapshot_class=None if audited.proven is None else audited.proven.snapshot_class,
        manifest_key=None if place is None else place.manifest_key,
        indexes_key=None if place is None else place.indexes_key,
        indexes_bytes=None if place is None else place.indexes_bytes,
        appended_bytes=None if place is None else place.appended_bytes,
        old_place=None if place is None else doc.ObjectPart(position=place.old.position, size_bytes=place.old.size),
        place=None if place is None else doc.ObjectPart(position=place.new.position, size_bytes=place.new.size),
    )


def _answer(result: TierRepair) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import COPIES, given_words, repeated_words, unless_unread
    from snaprebuild.findings import pluralize

    if not result.copies:
        return f"{unless_unread(_none_wrong(result), result.findings)}.", []
    actions = Counter(each.action.value for each in result.copies)
    totals = ", ".join(f"{count} {action}" for action, count in actions.items())
    dry = "Dry run: nothing was written. " if result.is_dry_run else ""
    answer = f"{dry}{pluralize(len(result.copies), 'wrong snapshot')}: {totals}."
    if result.is_dry_run and actions["would-repair"]:
        return answer, ["tier", "repair", *repeated_words("dry_run")]
    selected = given_words(*COPIES)
    return answer, ["tier", "audit", *selected]


def _print(result: TierRepair) -> None:
    from snaprebuild.cli.result import id_labels, print_table, print_text, print_undo

    rows = []
    ids = id_labels((each.topic, each.topic_id) for each in result.audit.partitions)
    for each in result.copies:
        audited = each.audited
        place = each.place
        old, new = ("-", "-") if place is None else (f"{one.size} B at {one.position}" for one in (place.old, place.new))
        reason = each.why or ("appended by an earlier run" if place is not None and not place.appended_bytes else "-")
        label = each.partition.name + ids.get((each.partition.topic, each.partition.topic_id), "")
        rows.append((label, audited.start_offset, audited.verdict, each.action, old, new, reason))
    if rows:
        columns = ("partition", "from offset", "snapshot is", "action", "snapshot", "right one", "because")
        print_table(None, columns, rows, right=("from offset",), drop=("snapshot", "right one", "snapshot is"))
    if _is_any(result):
        for text in EFFECT:
            print_text(text)
    print_undo(result.undo_file)
