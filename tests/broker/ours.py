"""The one place where these tests touch the code under test. Everything else here is Kafka, or independent of both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

from oracle import CompletedTransaction, Entry
from reference_producer_state import InvalidTransactionStateError, ProducerState, producer_batches

from formats.log.batch_headers import BytesSegment, HeaderBlock, HeaderReader, TailKind
from formats.partition.file_names import PartitionDirectoryName
from snaprebuild.followers import Profile
from snaprebuild.followers.fetch_path import fetch_path
from snaprebuild.followers.leader_view import view_partition
from snaprebuild.followers.list_offsets import Isolation
from snaprebuild.followers.offsets import OffsetAnswer, OffsetsRequest, list_offsets
from snaprebuild.replay import segment_summary
from snaprebuild.replay.leader_epochs import end_of_epoch
from snaprebuild.replay.segment_summary import summarise_pieces
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.engine.partition_replay import BoundaryState, PartitionReplay, ReplayFrom
from snaprebuild.snapshots.engine.segment_reader import read_tasks
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.partition_dir import list_partition_dir, read_positions_hint
from snaprebuild.storage.store_path import ReadPath, StorePath
from snaprebuild.tier.remote_store import StoreAccess, open_tier

States = dict[int, dict[int, Entry]]
BLOCK_BYTES = 1 << 13
"""Small, so that long segments consist of several blocks."""


def states_of(partition_dir: Path, *, block_bytes: int = BLOCK_BYTES, from_the_end: bool = False) -> States:
    """Our state at every boundary of a partition directory, by the replay of the command: boundary offset -> producer id -> entry.
    States are taken from what was read at once, or ``from_the_end``, when everything was read. Then effects are composed with each
    other before they are composed with the state below them.

    Replay begins at the first segment on disk with empty state, per batch, no expiry. A boundary at or above a batch that
    makes Kafka throw is absent. With a torn tail in the last segment, the log end is the end of the last whole batch.
    """
    name = PartitionDirectoryName(partition_dir.name, 0)
    directory = list_partition_dir(str(partition_dir), name)
    replay = PartitionReplay(
        directory=directory,
        mode=ReplayFrom.LOG_START,
        clock=Clock(0, 1),
        window_index=0,
        stop_index=len(directory.segments),
        first_wanted=0,
    )
    boundaries = []
    states: States = {}
    indices = replay.begin()
    for index, task in zip(indices, read_tasks(directory, indices, check_crc=False), strict=True):
        if replay.damage is not None:
            break
        with SegmentFile(task.path) as source:
            hint = None if task.index_path is None else read_positions_hint(ReadPath(LOCAL, task.index_path), source.size_bytes)
            options = {"check_crc": False, "hint": hint, "block_bytes": block_bytes}
            pieces = summarise_pieces(source, task.base_offset, task.cuts, is_last=task.is_last, **options)
        for boundary in (state for piece in pieces for state in replay.take(index, piece)):
            boundaries.append(boundary)
            if not from_the_end:
                states[boundary.offset] = _entries_at(boundary)
    for boundary in reversed(boundaries):
        states[boundary.offset] = _entries_at(boundary)
    return states


def states_of_single_batches(partition_dir: Path) -> States:
    """States with an effect for every batch or two. In logs of a few batches a segment is a block, and nothing would be
    composed."""
    with patch.object(segment_summary, "BLOCK_ROWS", 1):
        return states_of(partition_dir, block_bytes=1, from_the_end=True)


def _entries_at(boundary: BoundaryState) -> dict[int, Entry]:
    entries = (Entry._make(row) for row in boundary.entries.tolist())
    return {entry.producer_id: entry for entry in entries}


def specification_states_of(partition_dir: Path) -> States:
    """States by the specification fold, batch by batch."""
    return _specification(partition_dir)[0]


def specification_completed(partition_dir: Path) -> list[CompletedTransaction]:
    """The transactions that it completes, with the last stable offset of that moment."""
    return _specification(partition_dir)[1]


def _specification(partition_dir: Path) -> tuple[States, list[CompletedTransaction]]:
    state = ProducerState()
    states: States = {}
    completed = []
    for boundary, blocks, readable in _segments(partition_dir):
        try:
            for block in blocks:
                for each in state.append(producer_batches(block)):
                    stable = state.last_stable_offset(each)
                    completed.append(
                        CompletedTransaction(each.producer_id, each.first_offset, each.last_offset, each.is_aborted, stable)
                    )
        except InvalidTransactionStateError:
            break
        if not readable:
            break
        states[boundary] = {key: Entry(*(getattr(value, name) for name in Entry._fields)) for key, value in state.entries.items()}
    return states, completed


ENGINES: Mapping[str, Callable[[Path], States]] = {
    "segment effects": states_of,
    "effects of single batches": states_of_single_batches,
    "specification": specification_states_of,
}


def _segments(partition_dir: Path) -> list[tuple[int, list[HeaderBlock], bool]]:
    """For each segment the boundary after it, its header blocks, and whether everything up to the boundary could be read."""
    files = sorted(partition_dir.glob("[0-9]" * 20 + ".log"))
    bases: list[int | None] = [int(file.stem) for file in files]
    segments = []
    for file, (base, next_base) in zip(files, pairwise([*bases, None]), strict=True):
        reader = HeaderReader(BytesSegment(file.read_bytes(), file.name), block_bytes=BLOCK_BYTES)
        blocks = list(reader)
        assert reader.tail is not None
        # Some bytes of a batch may well be zeros: the first of its offset are.
        at_end = (TailKind.TORN, TailKind.ZERO_FILLED) if next_base is None else ()
        readable = reader.tail.kind is TailKind.CLEAN or reader.tail.kind in at_end
        end = base
        if blocks:
            last = blocks[-1].headers()[-1]
            end = last.base_offset + last.last_offset_delta + 1
        assert end is not None
        segments.append((end if next_base is None else next_base, blocks, readable))
    return segments


def answer_numbers(answers: Iterable[OffsetAnswer]) -> dict[int, tuple[int, int, int]]:
    """Offset, timestamp and leader epoch of each answer, by the requested timestamp; -2 for what is not known."""
    return {
        answer.timestamp_ms: (
            -2 if answer.offset is None else answer.offset,
            -2 if answer.record_timestamp_ms is None else answer.record_timestamp_ms,
            -2 if answer.leader_epoch is None else answer.leader_epoch,
        )
        for answer in answers
    }


def answers_of_leader(
    partition_dir: Path, store: Path, metadata_log: Path, timestamps: Sequence[int], offsets: Sequence[int]
) -> tuple[dict[int, tuple[int, int, int]], dict[int, str], Callable[[int], tuple[set[int], set[str]]]]:
    """Answers of a leader with remote storage to ListOffsets. By offset: the id of the copy that serves it where the disk does
    not, "-" for none. Then the base offsets that remain on disk, and the copies that go, when the records below an offset are
    deleted."""
    source = open_source([str(partition_dir)])
    tier = open_tier(StoreAccess(StorePath(LOCAL, str(store)), [str(metadata_log)]))
    request = OffsetsRequest(tuple(timestamps), Isolation.REPLICA, 11, Profile.KAFKA)
    result, findings = list_offsets(source, tier, request, Run(clock=Clock(0, 1)))
    assert not findings, findings
    (partition,) = result.partitions

    def deleted_below(offset: int) -> tuple[set[int], set[str]]:
        deletion = fetch_path(source, tier, offset)[0].partitions[0].delete_records
        bases = {segment.base_offset for segment in source.partitions[0].directory.segments}
        return bases - {each.base_offset for each in deletion.segments}, {each.segment_id for each in deletion.copies}

    fetches = {each: fetch_path(source, tier, each)[0].partitions[0].consumer for each in offsets}
    return (
        answer_numbers(partition.answers),
        {each: fetch.served_from or "-" for each, fetch in fetches.items()},
        deleted_below,
    )


def ends_of_epochs(partition_dir: Path, store: Path, metadata_log: Path, epochs: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Answers of a leader with remote storage to OffsetsForLeaderEpoch: the leader epoch that is found, and its end; -1 each for
    none."""
    (partition,) = open_source([str(partition_dir)]).partitions
    view = view_partition(partition, open_tier(StoreAccess(StorePath(LOCAL, str(store)), [str(metadata_log)])), None)
    ends = {epoch: end_of_epoch(view.leader_epochs, epoch, view.log_end.offset) for epoch in epochs}
    return {epoch: (-1, -1) if end is None else (end.epoch, end.end_offset) for epoch, end in ends.items()}
