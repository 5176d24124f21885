"""What was repaired in remote storage, taken back: as a document and as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from snaprebuild.cli.verb import Result

if TYPE_CHECKING:
    from snaprebuild.documents import tier as doc
    from snaprebuild.tier.repair.undo import TierUndo, UndoneRepair

__all__ = ["EFFECT", "repair_totals", "undone_result"]

EFFECT = (
    "A broker sees it when its plugin has dropped the old manifest and the old snapshot. That is fetch.manifest.cache.retention.ms "
    "(3600000 by default) and fetch.indexes.cache.retention.ms (600000) after their last use. What is in constant use stays until the "
    "broker restarts. Until then it reads the old snapshot, whole. remote-log-index-cache of Kafka itself holds no producer snapshots.",
    "A follower that has already started from a wrong snapshot is not repaired by this: use `follower repair`.",
)
"""When it takes effect (``MemorySegmentManifestCache``, ``MemorySegmentIndexesCache`` of the plugin, which count from the last access)."""

UNDONE_EFFECT = (
    "What was appended to .indexes stays after the indexes, where no manifest points: harmless, and a later repair uses it again."
)


def repair_totals(actions: Sequence[StrEnum]) -> doc.RepairTotals:
    """Copies by action."""
    from snaprebuild.documents import tier as doc
    from snaprebuild.tier.repair.repair import RepairAction
    from snaprebuild.tier.repair.undo import UndoAction

    counts = Counter(action.value for action in actions)
    return msgspec.convert({kind.value: counts[kind.value] for kind in (*RepairAction, *UndoAction)}, doc.RepairTotals)


def undone_result(result: TierUndo) -> Result:
    """What ``undo`` leaves of a repair."""
    return Result(lambda: _document(result), result.findings, lambda: _print_undone(result), answer=lambda: _answer(result))


def _document(result: TierUndo) -> doc.TierRepair:
    from snaprebuild.documents import tier as doc

    return doc.TierRepair(
        store=result.root,
        dry_run=result.is_dry_run,
        undone_receipt=result.path,
        receipt=None,
        verified=None,
        as_of_ms=None,
        expiration_ms=None,
        totals=repair_totals([each.action for each in result.copies]),
        copies=[_undone_copy(each) for each in result.copies],
        effect=[EFFECT[0], UNDONE_EFFECT] if result.copies else [],
    )


def _undone_copy(undone: UndoneRepair) -> doc.RepairedCopy:
    from snaprebuild.documents import tier as doc
    from snaprebuild.storage.partition_names import named

    announced = undone.announced
    return doc.RepairedCopy(
        **named(announced.topic, announced.partition),
        topic_id=announced.topic_id,
        segment_id=announced.segment_id,
        start_offset=announced.start_offset,
        end_offset=None,
        action=undone.action.value,
        reason=undone.why,
        verdict=None,
        entries=None,
        snapshot_class=None,
        manifest_key=announced.manifest.key,
        indexes_key=None,
        indexes_bytes=None,
        appended_bytes=None,
        old_place=None,
        place=None,
    )


def _answer(result: TierUndo) -> tuple[str, list[str]]:
    from snaprebuild.cli.result import repeated_words
    from snaprebuild.findings import pluralize

    actions = Counter(each.action.value for each in result.copies)
    totals = ", ".join(f"{count} {action}" for action, count in actions.items())
    dry = "Dry run: nothing was written. " if result.is_dry_run else ""
    answer = f"{dry}{pluralize(len(result.copies), 'repair')}: {totals or 'nothing to take back'}."
    if result.is_dry_run and actions["would-restore"]:
        return answer, ["undo", *repeated_words("dry_run")]
    return answer, [] if result.is_dry_run or not actions["restored"] else ["tier", "audit", result.root]


def _print_undone(result: TierUndo) -> None:
    from snaprebuild.cli.result import print_table, print_text

    rows = [
        (f"{each.announced.topic}-{each.announced.partition}", each.announced.start_offset, each.action, each.why or "-")
        for each in result.copies
    ]
    if rows:
        print_table(None, ("partition", "from offset", "manifest", "because"), rows, right=("from offset",))
        print_text(EFFECT[0])
        print_text(UNDONE_EFFECT)
