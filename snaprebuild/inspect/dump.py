"""What stands in one file of a log directory, item by item, and everything that is wrong with it.

Each file is read from its start to its end in bounded memory, whatever is shown of it. An item is a row of plain values; items of one form
come together, as columns, so that a segment costs no object for each batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from formats import limits
from formats.broker.broker_files import read_clean_shutdown, read_meta_properties
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.limits import INT32_MAX
from formats.metadata.quorum_state import read_quorum_state
from formats.partition.checkpoint_file import read_leader_epoch_checkpoint, read_offset_checkpoint
from formats.partition.file_kind import HEAD_BYTES, KindOfName, kind_of_content, kind_of_name
from formats.partition.file_names import DumpedKind, FileKind, parse_file_name
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.partition_metadata import read_partition_metadata, uuid_to_text
from formats.partition.producer_snapshot import read_entries
from formats.partition.time_index import read_time_index
from formats.partition.transaction_index import read_transaction_index
from snaprebuild.errors import GoneFileError, SnaprebuildError, UsageError
from snaprebuild.findings import Severity, finding_of_error
from snaprebuild.inspect.dump_items import ROWS_MAX, Dump, DumpRequest, ItemForm, Items
from snaprebuild.inspect.dump_log import log_items
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.snapshots.engine.index_check import (
    IndexCheck,
    check_offset_index,
    check_time_index,
    check_transaction_index,
    log_beside,
)
from snaprebuild.storage.store import USUAL_S3, OpenBytes, S3Settings
from snaprebuild.storage.stores import store_of

__all__ = ["dump_file"]


def dump_file(path: str, request: DumpRequest, settings: S3Settings = USUAL_S3) -> Dump:
    """Opens a file. Its items are read while they are iterated; every fault of the file becomes a finding.

    Args:
        path: of a file, or the location of an object.
        request: what is wanted of it.
        settings: how object stores are reached.

    Raises:
        UsageError: nothing tells what the file is.
        ReadFailedError: it cannot be opened.
        RefusedError: a limit of the run is used up.
    """
    by_name = kind_of_name(os.path.basename(path))
    store = store_of(path, settings)
    with store.open_bytes(path) as source:
        kind, told_by = _kind_of(source, request, by_name)
        dump = Dump(path, kind, told_by, by_name.offset, by_name.epoch, source.size_bytes, store, source.identity)
    dump.items = _guarded(dump, _READERS[kind](dump, request))
    return dump


def _kind_of(source: OpenBytes, request: DumpRequest, by_name: KindOfName) -> tuple[DumpedKind, str]:
    if request.kind is not None:
        return request.kind, "option"
    if by_name.kind is not None:
        return by_name.kind, "name"
    head = bytearray(min(HEAD_BYTES, source.size_bytes))
    source.read_into(0, memoryview(head))
    by_content = kind_of_content(bytes(head), source.size_bytes)
    if by_content is None:
        raise UsageError("neither its name nor its first bytes tell what it is; --file-kind names the kind", path=source.name)
    return by_content, "content"


def _guarded(dump: Dump, items: Iterator[Items]) -> Iterator[Items]:
    """The items; what ends them early becomes a finding."""
    try:
        for each in items:
            dump.item_count += len(each)
            yield each
    except LimitExceededError as error:
        dump.tell("over-limit", Severity.FINDING, error)
    except FormatError as error:
        dump.tell("damaged-file", Severity.DAMAGED, error)
    except SnaprebuildError as error:
        dump.findings.append(finding_of_error(error, dump.path, may_vanish=True))
    dump.count_findings()


# --- snapshots and small files ---------------------------------------------------------------------------------------------


def _snapshot_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    entries = read_entries(_bytes_of(dump, limits.SNAPSHOT_BYTES_MAX), file=dump.path)
    # Only a broker names a snapshot by its end: the remote tier names it by the first offset of its segment.
    name = parse_file_name(os.path.basename(dump.path))
    is_end = name is not None and name.kind in (FileKind.PRODUCER_SNAPSHOT, FileKind.PRODUCER_SNAPSHOT_TEMPORARY)
    fault = impossible_entries(entries, dump.offset) if is_end and dump.offset is not None else None
    if fault is not None:
        dump.tell("impossible-entries", Severity.DAMAGED, BadValueError("entries of a snapshot", found=fault))
    shown = entries
    if not request.takes_all:
        last = entries["last_offset"]
        shown = entries[(last >= request.offset_from) & (last <= request.offset_to)]
    for start in range(0, len(shown), ROWS_MAX):
        part = shown[start : start + ROWS_MAX]
        columns: dict[str, list[Any]] = {name: part[name].tolist() for name in part.dtype.names or ()}
        batches = zip(columns["last_offset"], columns["last_sequence"], columns["offset_delta"], strict=True)
        columns["first_sequence"] = [None if offset < 0 else _first_sequence(last, delta) for offset, last, delta in batches]
        yield Items(ItemForm.PRODUCER, columns)


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    """``DefaultRecordBatch.decrementSequence``."""
    first = last_sequence - offset_delta
    return first if first >= 0 or last_sequence < 0 else first + INT32_MAX + 1


def _bytes_of(dump: Dump, bytes_max: int) -> bytes:
    if dump.size_bytes > bytes_max:
        raise LimitExceededError("file", expected=f"at most {bytes_max} bytes", found=dump.size_bytes)
    data = dump.store.read_small(dump.path, bytes_max)
    if data is None:
        raise GoneFileError("was removed meanwhile", path=dump.path)
    return data


def _small_file_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    for items in _SMALL_FILES[dump.kind](_bytes_of(dump, limits.TEXT_FILE_BYTES_MAX), dump.path):
        if request.takes_all or "offset" not in items.columns:
            yield items
            continue
        shown = [row for row, offset in enumerate(items.columns["offset"]) if request.offset_from <= offset <= request.offset_to]
        if shown:
            yield Items(items.form, {name: [column[row] for row in shown] for name, column in items.columns.items()})


def _leader_epochs(data: bytes, file: str) -> Iterator[Items]:
    yield from _objects(ItemForm.LEADER_EPOCH, read_leader_epoch_checkpoint(data, file=file), ("epoch", "start_offset"))


def _partition_offsets(data: bytes, file: str) -> Iterator[Items]:
    yield from _objects(ItemForm.PARTITION_OFFSET, read_offset_checkpoint(data, file=file), ("topic", "partition", "offset"))


def _objects(form: ItemForm, entries: Sequence[object], names: Sequence[str]) -> Iterator[Items]:
    for start in range(0, len(entries), ROWS_MAX):
        part = entries[start : start + ROWS_MAX]
        yield Items(form, {name: [getattr(entry, name) for entry in part] for name in names})


def _partition_metadata(data: bytes, file: str) -> Iterator[Items]:
    metadata = read_partition_metadata(data, file=file)
    yield _one(ItemForm.PARTITION_METADATA, version=metadata.version, topic_id=uuid_to_text(metadata.topic_id))


def _meta_properties(data: bytes, file: str) -> Iterator[Items]:
    meta = read_meta_properties(data, file=file)
    directory_id = None if meta.directory_id is None else uuid_to_text(meta.directory_id)
    yield _one(
        ItemForm.META_PROPERTIES,
        version=meta.version,
        node_id=meta.node_id,
        cluster_id=meta.cluster_id,
        directory_id=directory_id,
    )


def _clean_shutdown(data: bytes, file: str) -> Iterator[Items]:  # noqa: ARG001 - it never fails, and so names no file
    yield _one(ItemForm.CLEAN_SHUTDOWN, broker_epoch=read_clean_shutdown(data).broker_epoch)


def _quorum_state(data: bytes, file: str) -> Iterator[Items]:
    state = read_quorum_state(data, file=file)
    names = ("data_version", "leader_id", "leader_epoch", "voted_id", "voted_directory_id")
    yield _one(ItemForm.QUORUM_STATE, **{name: getattr(state, name) for name in names})


def _one(form: ItemForm, **fields: object) -> Items:
    return Items(form, {name: [value] for name, value in fields.items()})


_SMALL_FILES: dict[DumpedKind, Callable[[bytes, str], Iterator[Items]]] = {
    DumpedKind.LEADER_EPOCH_CHECKPOINT: _leader_epochs,
    DumpedKind.OFFSET_CHECKPOINT: _partition_offsets,
    DumpedKind.PARTITION_METADATA: _partition_metadata,
    DumpedKind.META_PROPERTIES: _meta_properties,
    DumpedKind.CLEAN_SHUTDOWN: _clean_shutdown,
    DumpedKind.QUORUM_STATE: _quorum_state,
}


# --- indexes ---------------------------------------------------------------------------------------------------------------


def _offset_index_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    index = read_offset_index(_bytes_of(dump, limits.INDEX_BYTES_MAX), file=dump.path)
    dump.preallocated_bytes = index.preallocated_bytes
    offset, position = _offsets_of(dump, index), index.column("position")
    check = _checked(dump, lambda log: check_offset_index(log, offset, position))
    columns = {"offset": offset, "relative_offset": index.column("relative_offset"), "position": position}
    yield from _index_items(ItemForm.OFFSET_INDEX_ENTRY, columns, offset, check, "log_offset", request)
    _tell_mismatches(dump, offset, check, "last offset of the batch at the position", index.grammar.entry_bytes)


def _time_index_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    index = read_time_index(_bytes_of(dump, limits.INDEX_BYTES_MAX), file=dump.path)
    dump.preallocated_bytes = index.preallocated_bytes
    offset, timestamp = _offsets_of(dump, index), index.column("timestamp")
    check = _checked(dump, lambda log: check_time_index(log, offset, timestamp))
    columns = {"timestamp": timestamp, "offset": offset, "relative_offset": index.column("relative_offset")}
    yield from _index_items(ItemForm.TIME_INDEX_ENTRY, columns, offset, check, "log_timestamp", request)
    _tell_mismatches(dump, timestamp, check, "greatest timestamp of the batch at the offset", index.grammar.entry_bytes)


def _transaction_index_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    index = read_transaction_index(_bytes_of(dump, limits.INDEX_BYTES_MAX), file=dump.path)
    last, producer_id = index.column("last_offset"), index.column("producer_id")
    check = _checked(dump, lambda log: check_transaction_index(log, last, producer_id))
    columns = {name: index.column(name) for name in index.columns.dtype.names or ()}
    yield from _index_items(ItemForm.ABORTED_TRANSACTION, columns, last, check, "log_producer_id", request)
    _tell_mismatches(dump, producer_id, check, "producer of the abort marker at the last offset", index.grammar.entry_bytes)


def _offsets_of(dump: Dump, index: Index[Any]) -> np.ndarray:
    """Absolute offsets of the entries; without a base offset in the name they count from 0."""
    return index.column("relative_offset") + (dump.offset or 0)


def _checked(dump: Dump, check: Callable[[OpenBytes], IndexCheck]) -> IndexCheck | None:
    """The entries beside the log; None where there is none, or the name does not tell the base offset."""
    log_path = log_beside(dump.path, dump.kind, dump.store)
    if log_path is None or dump.offset is None:
        return None
    with dump.store.open_bytes(log_path) as log:
        done = check(log)
    if done.unchecked_reason is not None:
        error = BadValueError(f"not every entry could be compared with {log_path}", found=done.unchecked_reason)
        dump.tell("index-not-compared", Severity.NOTE, error)
    return done


def _index_items(
    form: ItemForm,
    columns: dict[str, np.ndarray],
    offset: np.ndarray,
    check: IndexCheck | None,
    in_log: str,
    request: DumpRequest,
) -> Iterator[Items]:
    shown = np.flatnonzero((offset >= request.offset_from) & (offset <= request.offset_to))
    for start in range(0, len(shown), ROWS_MAX):
        rows = shown[start : start + ROWS_MAX]
        items: dict[str, list[Any]] = {name: column[rows].tolist() for name, column in columns.items()}
        if check is None:
            items[in_log] = items["agrees"] = [None] * len(rows)
        else:
            found, is_compared = check.found[rows].tolist(), check.is_compared[rows].tolist()
            is_there = check.is_there[rows].tolist()
            items[in_log] = [value if there else None for value, there in zip(found, is_there, strict=True)]
            agrees = check.agrees[rows].tolist()
            items["agrees"] = [value if compared else None for value, compared in zip(agrees, is_compared, strict=True)]
        yield Items(form, items)


def _tell_mismatches(dump: Dump, claimed: np.ndarray, check: IndexCheck | None, what: str, entry_bytes: int) -> None:
    if check is None:
        return
    wrong = np.flatnonzero(check.is_compared & ~check.agrees)
    if len(wrong):
        row = int(wrong[0])
        found = int(check.found[row]) if check.is_there[row] else "no batch"
        expected = f"{int(claimed[row])}, as the index says"
        error = BadValueError(what, position=row * entry_bytes, expected=expected, found=found)
        dump.tell("index-mismatch", Severity.FINDING, error, count=len(wrong))


_READERS: dict[DumpedKind, Callable[[Dump, DumpRequest], Iterator[Items]]] = {
    DumpedKind.LOG: log_items,
    DumpedKind.KRAFT_CHECKPOINT: log_items,
    DumpedKind.SNAPSHOT: _snapshot_items,
    DumpedKind.OFFSET_INDEX: _offset_index_items,
    DumpedKind.TIME_INDEX: _time_index_items,
    DumpedKind.TRANSACTION_INDEX: _transaction_index_items,
    **dict.fromkeys(_SMALL_FILES, _small_file_items),
}
