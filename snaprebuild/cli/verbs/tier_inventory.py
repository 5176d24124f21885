"""The verb ``tier inventory``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snaprebuild.cli.options.common import S3Options
from snaprebuild.cli.options.remote_storage import TierLocation, TierOptions, opened_tier
from snaprebuild.cli.verb import MeasuredOutput, Result, verb

if TYPE_CHECKING:
    from snaprebuild.documents import tier as doc
    from snaprebuild.tier.inventory import InventoryCopy, PartitionInventory, TierInventory

__all__ = ["tier_inventory"]


@verb()
def tier_inventory(
    *,
    store: TierLocation,
    tier_options: TierOptions,
    out: MeasuredOutput,
    s3: S3Options,
) -> Result:
    """Reads only: lists the copies of segments in remote storage, and the state of each by the metadata log.

    STORE is a directory or s3://BUCKET/PREFIX with the objects, as Aiven's plugin or LocalTieredStorage wrote them. Without
    --metadata-log the manifests are read, one request for each copy. Exit code 1 if objects are left over or missing, 4 if
    finished copies have lost objects.
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.tier.inventory import tier_inventory as look

    out.begin()
    check_paths([store, *(tier_options.metadata_log or [])])
    root, prefix = opened_tier(store, s3, tier_options.key_prefix)
    inventory = look(root, tier_options.metadata_log or (), s3.settings(), prefix)
    return Result(lambda: _document(inventory), inventory.findings, lambda: _print(inventory), notes=True)


def _document(inventory: TierInventory) -> doc.TierInventory:
    from snaprebuild.documents import tier as doc

    return doc.TierInventory(
        store=inventory.root,
        verified=inventory.is_whole_log,
        unknown_objects=inventory.unknown.count,
        partitions=[_partition(each) for each in inventory.partitions],
    )


def _partition(partition: PartitionInventory) -> doc.InventoryPartition:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import tier as doc
    from snaprebuild.storage.partition_names import named
    from snaprebuild.tier.inventory import CopyState

    return doc.InventoryPartition(
        **named(partition.topic, partition.partition),
        topic_id=uuid_to_text(partition.topic_id),
        layout=partition.layout,
        stored_bytes=partition.stored_bytes,
        totals=doc.InventoryTotals(**{state.value: partition.counts[state] for state in CopyState}),
        gaps=[doc.OffsetRange(first_offset=first, last_offset=last) for first, last in partition.gaps],
        overlaps=[doc.OffsetRange(first_offset=first, last_offset=last) for first, last in partition.overlaps],
        copies=[_copy(copy) for copy in partition.copies],
    )


def _copy(copy: InventoryCopy) -> doc.InventoryCopy:
    from formats.partition.partition_metadata import uuid_to_text
    from snaprebuild.documents import tier as doc

    return doc.InventoryCopy(
        segment_id=uuid_to_text(copy.segment_id),
        state=copy.state.value,
        start_offset=copy.start_offset,
        end_offset=copy.end_offset,
        leader_epochs=[doc.LeaderEpoch(epoch=epoch, start_offset=start) for epoch, start in copy.leader_epochs],
        segment_bytes=copy.segment_bytes,
        stored_bytes=copy.stored_bytes,
        event_timestamp_ms=copy.event_timestamp_ms,
        missing=copy.missing,
        fault=copy.fault,
    )


def _print(inventory: TierInventory) -> None:
    from snaprebuild.cli.result import id_labels, print_table, print_text, size_text
    from snaprebuild.findings import pluralize
    from snaprebuild.tier.inventory import SERVING

    rows = []
    ids = id_labels((each.topic, each.topic_id) for each in inventory.partitions)
    for each in inventory.partitions:
        label = each.name + ids.get((each.topic, each.topic_id), "")
        ends = [copy.end_offset for copy in each.copies if copy.state in SERVING and copy.end_offset is not None]
        first = next((copy.start_offset for copy in each.copies if copy.state in SERVING), "-")
        states = ", ".join(f"{count} {state.value}" for state, count in sorted(each.counts.items()))
        gaps = pluralize(len(each.gaps), "gap") if each.gaps else "-"
        rows.append((label, each.layout or "-", first, max(ends, default="-"), size_text(each.stored_bytes), gaps, states))
    columns = ("partition", "layout", "from offset", "to offset", "stored", "gaps", "copies")
    print_table("Remote storage", columns, rows, right=("from offset", "to offset", "stored"), drop=("layout",))
    stored = sum(each.stored_bytes for each in inventory.partitions)
    copies = sum(len(each.copies) for each in inventory.partitions)
    summary = f"{pluralize(len(inventory.partitions), 'partition')}, {pluralize(copies, 'copy', 'copies')} of segments, {size_text(stored)}"
    print_text(summary if inventory.is_whole_log else f"{summary}; which of them are live is unverified")
