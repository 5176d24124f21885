"""The content of one file of a log directory, item by item, and everything that is wrong with it.

Each file is read from its start to its end in bounded memory, whatever is shown of it. An item is a row of plain values. Items of one form
are yielded together, as columns, so that a segment needs no object for each batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from formats import limits
from formats.broker.broker_files import read_clean_shutdown, read_meta_properties
from formats.errors import BadValueError, FormatError, LimitExceededError
from formats.limits import INT32_MAX
from formats.metadata.quorum_state import read_quorum_state
from formats.partition.checkpoint_file import read_leader_epoch_checkpoint, read_offset_checkpoint
from formats.partition.file_kind import HEAD_BYTES, KindOfName, kind_of_content, kind_of_name
from formats.partition.file_names import DumpedKind, FileKind, parse_file_name, parse_partition_dir_name
from formats.partition.index_entries import Index
from formats.partition.offset_index import read_offset_index
from formats.partition.partition_metadata import read_partition_metadata, uuid_to_text
from formats.partition.producer_snapshot import read_entries
from formats.partition.time_index import read_time_index
from formats.partition.transaction_index import read_transaction_index
from snaprebuild.errors import GoneFileError, ReadFailedError, RefusedError, SnaprebuildError, UsageError
from snaprebuild.findings import Finding, Severity, finding_of_error, is_gone
from snaprebuild.inspect.decoder_names import Decoder, MinorRelease, decoder_of_topic
from snaprebuild.inspect.dump_items import ROWS_MAX, Dump, DumpRequest, ItemForm, Items
from snaprebuild.inspect.dump_log import log_items
from snaprebuild.inspect.record_decoders import RecordDecoder
from snaprebuild.replay.difference import impossible_entries
from snaprebuild.snapshots.engine.index_check import (
    IndexCheck,
    check_offset_index,
    check_time_index,
    check_transaction_index,
    log_of_index,
)
from snaprebuild.storage.store import USUAL_S3, OpenBytes, S3Settings, is_object
from snaprebuild.storage.store_path import path_of

__all__ = ["dump_file", "open_dumps"]


def dump_file(path: str, request: DumpRequest, stores: S3Settings = USUAL_S3) -> Dump:
    """Opens a file. Its items are read while they are iterated; every fault of the file becomes a finding.

    Args:
        path: of a file, or the location of an object.
        request: what is dumped.
        stores: how object stores are reached.

    Raises:
        UsageError: neither option, name nor content shows what the file is.
        ReadFailedError: it cannot be opened.
        RefusedError: a limit of the run is used up.
    """
    by_name = kind_of_name(os.path.basename(path))
    file = path_of(path, stores)
    with file.open(may_grow=True) as source:
        kind, kind_from = _kind_of(source, request, by_name)
        dump = Dump(
            file=file,
            kind=kind,
            kind_from=kind_from,
            offset=by_name.offset,
            epoch=by_name.epoch,
            size_bytes=source.size_bytes,
            identity=source.identity,
        )
    if request.decoder is not None and kind in (DumpedKind.LOG, DumpedKind.KRAFT_CHECKPOINT):
        dump.decoder = _record_decoder(dump, request.decoder, request.release)
    dump.items = _guarded(dump, _READERS[kind](dump, request))
    return dump


def _record_decoder(dump: Dump, decoder: Decoder, release: MinorRelease | None) -> RecordDecoder | None:
    """The decoder of a log; None, with a finding, if its directory shows no topic that the release has a decoder for."""
    if decoder is not Decoder.AUTO:
        return RecordDecoder(decoder, release)
    if dump.kind is DumpedKind.KRAFT_CHECKPOINT:
        of_topic: Decoder | None = Decoder.CLUSTER_METADATA
    else:
        directory = os.path.dirname(dump.path if is_object(dump.path) else os.path.abspath(dump.path))
        name = parse_partition_dir_name(os.path.basename(directory))
        of_topic = None if name is None else decoder_of_topic(name.topic)
    if of_topic is not None and (release is None or of_topic.first_release <= release):
        return RecordDecoder(of_topic, release)
    if of_topic is None:
        found = "the directory of no topic that has one"
    else:
        found = f"{of_topic.value}, which is there since {'.'.join(map(str, of_topic.first_release))}"
    dump.add_finding("no-decoder", Severity.NOTE, BadValueError("decoder of the records", found=found))
    return None


def open_dumps(paths: Sequence[str], request: DumpRequest, stores: S3Settings) -> list[Dump | Finding]:
    """Opens files; a file that cannot be dumped is a finding.

    Args:
        paths: of files, or locations of objects.
        request: what is dumped of each.
        stores: how object stores are reached.

    Raises:
        UsageError: nothing at all is a file of Kafka, or is there.
    """
    dumps: list[Dump | Finding] = []
    errors: list[UsageError] = []
    for path in paths:
        try:
            dumps.append(dump_file(path, request, stores))
        except UsageError as error:
            errors.append(error)
            dumps.append(Finding("unknown-kind", Severity.FINDING, path, f"{error.message}: not dumped"))
        except (ReadFailedError, RefusedError) as error:
            dumps.append(finding_of_error(error, path, may_vanish=True))
            if not is_object(path) and is_gone(error) and not os.path.lexists(path):
                errors.append(UsageError("no such file", path=path))
    if len(errors) == len(paths):
        raise errors[0]
    return dumps


def _kind_of(source: OpenBytes, request: DumpRequest, by_name: KindOfName) -> tuple[DumpedKind, str]:
    if request.kind is not None:
        return request.kind, "option"
    if by_name.kind is not None:
        return by_name.kind, "name"
    head = bytearray(min(HEAD_BYTES, source.size_bytes))
    source.read_into(0, memoryview(head))
    by_content = kind_of_content(bytes(head), source.size_bytes)
    if by_content is None:
        raise UsageError("neither its name nor its first bytes show what it is; use --file-kind", path=source.name)
    return by_content, "content"


def _guarded(dump: Dump, items: Iterator[Items]) -> Iterator[Items]:
    """The items; an error that ends them early becomes a finding."""
    try:
        for item in items:
            dump.item_count += len(item)
            yield item
    except LimitExceededError as error:
        dump.add_finding("over-limit", Severity.FINDING, error)
    except FormatError as error:
        dump.add_finding("damaged-file", Severity.DAMAGED, error)
    except SnaprebuildError as error:
        dump.findings.append(finding_of_error(error, dump.path, may_vanish=True))
    dump.count_findings()


# --- snapshots and small files ---------------------------------------------------------------------------------------------


def _snapshot_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    entries = read_entries(_bytes_of(dump, limits.SNAPSHOT_BYTES_MAX), file=dump.path)
    # Only a broker names a snapshot by its end: remote storage names it by the first offset of its segment.
    name = parse_file_name(os.path.basename(dump.path))
    is_end = name is not None and name.kind in (FileKind.PRODUCER_SNAPSHOT, FileKind.PRODUCER_SNAPSHOT_TEMPORARY)
    fault = impossible_entries(entries, dump.offset) if is_end and dump.offset is not None else None
    if fault is not None:
        dump.add_finding("impossible-entries", Severity.DAMAGED, BadValueError("entries of a snapshot", found=fault))
    selected_entries = entries
    if not request.takes_all:
        last = entries["last_offset"]
        selected_entries = entries[(last >= request.offset_from) & (last <= request.offset_to)]
    for start in range(0, len(selected_entries), ROWS_MAX):
        part = selected_entries[start : start + ROWS_MAX]
        columns: dict[str, list[Any]] = {name: part[name].tolist() for name in part.dtype.names or ()}
        batches = zip(columns["last_offset"], columns["last_sequence"], columns["offset_delta"], strict=True)
        columns["first_sequence"] = [None if offset < 0 else _first_sequence(last, delta) for offset, last, delta in batches]
        yield Items(ItemForm.PRODUCER, columns)


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    """``DefaultRecordBatch.decrementSequence``."""
    first = last_sequence - offset_delta
    if first >= 0 or last_sequence < 0:
        return first
    return first + INT32_MAX + 1


def _bytes_of(dump: Dump, bytes_max: int) -> bytes:
    if dump.size_bytes > bytes_max:
        raise LimitExceededError("file", expected=f"at most {bytes_max} bytes", found=dump.size_bytes)
    data = dump.file.read_small(bytes_max)
    if data is None:
        raise GoneFileError("was removed meanwhile", path=dump.path)
    return data


def _small_file_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    form, names, read = _SMALL_FILES[dump.kind]
    entries = read(_bytes_of(dump, limits.TEXT_FILE_BYTES_MAX), dump.path)
    if "offset" in names and not request.takes_all:
        entries = [entry for entry in entries if request.offset_from <= entry.offset <= request.offset_to]
    for start in range(0, len(entries), ROWS_MAX):
        part = entries[start : start + ROWS_MAX]
        yield Items(form, {name: [_plain(getattr(entry, name)) for entry in part] for name in names})


def _plain(value: object) -> object:
    """A UUID as text; everything else as it is."""
    return uuid_to_text(value) if isinstance(value, bytes) else value


_SMALL_FILES: dict[DumpedKind, tuple[ItemForm, tuple[str, ...], Callable[[bytes, str], Sequence[Any]]]] = {
    DumpedKind.LEADER_EPOCH_CHECKPOINT: (
        ItemForm.LEADER_EPOCH,
        ("epoch", "start_offset"),
        lambda data, file: read_leader_epoch_checkpoint(data, file=file),
    ),
    DumpedKind.OFFSET_CHECKPOINT: (
        ItemForm.PARTITION_OFFSET,
        ("topic", "partition", "offset"),
        lambda data, file: read_offset_checkpoint(data, file=file),
    ),
    DumpedKind.PARTITION_METADATA: (
        ItemForm.PARTITION_METADATA,
        ("version", "topic_id"),
        lambda data, file: (read_partition_metadata(data, file=file),),
    ),
    DumpedKind.META_PROPERTIES: (
        ItemForm.META_PROPERTIES,
        ("version", "node_id", "cluster_id", "directory_id"),
        lambda data, file: (read_meta_properties(data, file=file),),
    ),
    DumpedKind.CLEAN_SHUTDOWN: (ItemForm.CLEAN_SHUTDOWN, ("broker_epoch",), lambda data, _: (read_clean_shutdown(data),)),
    DumpedKind.QUORUM_STATE: (
        ItemForm.QUORUM_STATE,
        ("data_version", "leader_id", "leader_epoch", "voted_id", "voted_directory_id"),
        lambda data, file: (read_quorum_state(data, file=file),),
    ),
}


# --- indexes ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _IndexKind:
    """How the entries of a kind of index are read, compared with the log, and shown.

    Attributes:
        names: of the columns that are shown; ``offset`` is the absolute one of ``relative_offset``.
        offset: column with the offset of an entry.
        value: column that ``check`` compares at that offset.
        claimed: column with what an entry claims about ``what``.
        in_log: name of the column with what the log has.
    """

    form: ItemForm
    read: Callable[..., Index[Any]]
    check: Callable[[OpenBytes, np.ndarray, np.ndarray], IndexCheck]
    names: tuple[str, ...]
    offset: str
    value: str
    claimed: str
    in_log: str
    what: str


_INDEXES = {
    DumpedKind.OFFSET_INDEX: _IndexKind(
        ItemForm.OFFSET_INDEX_ENTRY,
        read_offset_index,
        check_offset_index,
        ("offset", "relative_offset", "position"),
        offset="offset",
        value="position",
        claimed="offset",
        in_log="log_offset",
        what="last offset of the batch at the position",
    ),
    DumpedKind.TIME_INDEX: _IndexKind(
        ItemForm.TIME_INDEX_ENTRY,
        read_time_index,
        check_time_index,
        ("timestamp", "offset", "relative_offset"),
        offset="offset",
        value="timestamp",
        claimed="timestamp",
        in_log="log_timestamp",
        what="greatest timestamp of the batch at the offset",
    ),
    DumpedKind.TRANSACTION_INDEX: _IndexKind(
        ItemForm.ABORTED_TRANSACTION,
        read_transaction_index,
        check_transaction_index,
        ("version", "producer_id", "first_offset", "last_offset", "last_stable_offset"),
        offset="last_offset",
        value="producer_id",
        claimed="producer_id",
        in_log="log_producer_id",
        what="producer of the abort marker at the last offset",
    ),
}


def _index_items(dump: Dump, request: DumpRequest) -> Iterator[Items]:
    kind = _INDEXES[dump.kind]
    index = kind.read(_bytes_of(dump, limits.INDEX_BYTES_MAX), file=dump.path)
    columns = {name: index.column("relative_offset" if name == "offset" else name) for name in kind.names}
    if "offset" in columns:  # without a base offset in the name they count from 0
        columns["offset"] = columns["offset"] + (dump.offset or 0)
        dump.preallocated_bytes = index.preallocated_bytes
    offset = columns[kind.offset]
    check = _checked(dump, lambda log: kind.check(log, offset, columns[kind.value]))
    selected_rows = np.flatnonzero((offset >= request.offset_from) & (offset <= request.offset_to))
    for start in range(0, len(selected_rows), ROWS_MAX):
        rows = selected_rows[start : start + ROWS_MAX]
        items: dict[str, list[Any]] = {name: column[rows].tolist() for name, column in columns.items()}
        if check is None:
            items[kind.in_log] = items["agrees"] = [None] * len(rows)
        else:
            values_in_log = check.actual[rows].tolist()
            is_compared = check.is_compared[rows].tolist()
            is_there = check.is_there[rows].tolist()
            items[kind.in_log] = [value if there else None for value, there in zip(values_in_log, is_there, strict=True)]
            agrees = check.agrees[rows].tolist()
            items["agrees"] = [value if compared else None for value, compared in zip(agrees, is_compared, strict=True)]
        yield Items(kind.form, items)
    if check is not None:
        _find_mismatch(dump, columns[kind.claimed], check, kind.what, index.grammar.entry_bytes)


def _checked(dump: Dump, check: Callable[[OpenBytes], IndexCheck]) -> IndexCheck | None:
    """The entries compared with the log; None if there is no log, or no base offset in the name."""
    log_file = log_of_index(dump.file, dump.kind)
    if log_file is None or dump.offset is None:
        return None
    with log_file.open(may_grow=True) as log:
        check_result = check(log)
    if check_result.unchecked_reason is not None:
        error = BadValueError(f"not every entry could be compared with {log_file}", found=check_result.unchecked_reason)
        dump.add_finding("index-not-compared", Severity.NOTE, error)
    return check_result


def _find_mismatch(dump: Dump, claimed: np.ndarray, check: IndexCheck, what: str, entry_bytes: int) -> None:
    wrong = np.flatnonzero(check.is_compared & ~check.agrees)
    if len(wrong):
        row = int(wrong[0])
        value_in_log = int(check.actual[row]) if check.is_there[row] else "no batch"
        expected = f"{int(claimed[row])}, as the index says"
        error = BadValueError(what, position=row * entry_bytes, expected=expected, found=value_in_log)
        dump.add_finding("index-mismatch", Severity.FINDING, error, count=len(wrong))


_READERS: dict[DumpedKind, Callable[[Dump, DumpRequest], Iterator[Items]]] = {
    DumpedKind.LOG: log_items,
    DumpedKind.KRAFT_CHECKPOINT: log_items,
    DumpedKind.SNAPSHOT: _snapshot_items,
    **dict.fromkeys(_INDEXES, _index_items),
    **dict.fromkeys(_SMALL_FILES, _small_file_items),
}
