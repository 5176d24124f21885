"""Our replays with one rule broken, to see whether generated logs notice."""

from __future__ import annotations

from broken_code import BrokenCode
from ours import ENGINES

SPECIFICATION, EFFECT, COMPOSE = (
    f"snaprebuild.replay.{name}" for name in ("reference.producer_state", "block_effect", "segment_effect")
)
HEADERS, ROWS, CONTROL_RECORD = (f"formats.log.{name}" for name in ("batch_headers", "batch_rows", "control_record"))
RUNNING = "snaprebuild.replay.running_effect"


class BrokenRule(BrokenCode):
    """A rule of the replays."""

    @property
    def engines(self) -> tuple[str, ...]:
        """Which of ours use this text."""
        if self.module in (SPECIFICATION, "ours"):
            return ("specification",)
        effects = tuple(engine for engine in ENGINES if engine != "specification")
        return effects if self.module in (EFFECT, COMPOSE, RUNNING) else tuple(ENGINES)


BROKEN_RULES = (
    BrokenRule("fold: no wrap", SPECIFICATION, "return last - 2**31 if last > 2**31 - 1 else last", "return last"),
    BrokenRule(
        "fold: the wrap comes one too early", SPECIFICATION, "if last > 2**31 - 1 else last", "if last >= 2**31 - 1 else last"
    ),
    BrokenRule("fold: no sequence is a sequence", SPECIFICATION, "if base_sequence == -1:", "if base_sequence == -2:"),
    BrokenRule(
        "fold: an empty control batch of an unknown producer leaves nothing",
        SPECIFICATION,
        "                self.entries[batch.producer_id] = entry\n                return None",
        "                return None",
    ),
    BrokenRule(
        "fold: an empty control batch ends the transaction",
        SPECIFICATION,
        "                self.entries[batch.producer_id] = entry\n",
        "                self.entries[batch.producer_id] = replace(entry, current_txn_first_offset=-1)\n",
    ),
    BrokenRule(
        "fold: data outside of its transaction is taken",
        SPECIFICATION,
        "if first >= 0 and not batch.is_transactional:",
        "if False:",
    ),
    BrokenRule(
        "fold: every batch of a transaction opens it",
        SPECIFICATION,
        "if first < 0 and batch.is_transactional:",
        "if batch.is_transactional:",
    ),
    BrokenRule("fold: nothing opens a transaction", SPECIFICATION, "if first < 0 and batch.is_transactional:", "if False:"),
    BrokenRule(
        "fold: another epoch opens the transaction anew",
        SPECIFICATION,
        "if first < 0 and batch.is_transactional:",
        "if (first < 0 or batch.epoch != entry.epoch) and batch.is_transactional:",
    ),
    BrokenRule(
        "fold: data of an older epoch is refused", SPECIFICATION, "epoch=batch.epoch,", "epoch=max(entry.epoch, batch.epoch),"
    ),
    BrokenRule(
        "fold: timestamps of data only rise",
        SPECIFICATION,
        "timestamp=batch.max_timestamp",
        "timestamp=max(entry.timestamp, batch.max_timestamp)",
    ),
    BrokenRule(
        "fold: the last offset is the base offset",
        SPECIFICATION,
        "last_offset=batch.base_offset + batch.last_offset_delta",
        "last_offset=batch.base_offset",
    ),
    BrokenRule(
        "fold: data of another epoch forgets the coordinator epoch",
        SPECIFICATION,
        "timestamp=batch.max_timestamp,",
        "timestamp=batch.max_timestamp, coordinator_epoch=entry.coordinator_epoch if batch.epoch == entry.epoch else -1,",
    ),
    BrokenRule(
        "fold: a marker of an older epoch is refused", SPECIFICATION, "epoch=marker.epoch,", "epoch=max(entry.epoch, marker.epoch),"
    ),
    BrokenRule(
        "fold: coordinator epochs only rise",
        SPECIFICATION,
        "coordinator_epoch=marker.coordinator_epoch",
        "coordinator_epoch=max(entry.coordinator_epoch, marker.coordinator_epoch)",
    ),
    BrokenRule(
        "fold: a commit leaves the transaction open",
        SPECIFICATION,
        "        current_txn_first_offset=-1,\n    )",
        "        current_txn_first_offset=entry.current_txn_first_offset if marker.is_commit else -1,\n    )",
    ),
    BrokenRule(
        "fold: a marker of an older epoch keeps the batch",
        SPECIFICATION,
        "if marker.epoch != entry.epoch:",
        "if marker.epoch > entry.epoch:",
    ),
    BrokenRule(
        "fold: a marker of a newer epoch keeps the batch",
        SPECIFICATION,
        "if marker.epoch != entry.epoch:",
        "if marker.epoch < entry.epoch:",
    ),
    BrokenRule("fold: a marker of the same epoch drops the batch", SPECIFICATION, "if marker.epoch != entry.epoch:", "if True:"),
    BrokenRule("fold: a marker keeps the timestamp", SPECIFICATION, "timestamp=marker.timestamp,", "timestamp=entry.timestamp,"),
    BrokenRule("fold: aborts are commits", SPECIFICATION, "batch.offset, not batch.is_commit)", "batch.offset, batch.is_commit)"),
    BrokenRule(
        "fold: the transaction that ends holds the last stable offset",
        SPECIFICATION,
        "if producer_id != completed.producer_id)",
        "if True)",
    ),
    BrokenRule(
        "fold: by the segment", "ours", "state.append(producer_batches(block)):", "state.append_chunk(producer_batches(block)):"
    ),
    BrokenRule("fold: producer 0 is none", SPECIFICATION, "if header.producer_id < 0:", "if header.producer_id <= 0:"),
    BrokenRule(
        "markers: log append time is not looked at",
        HEADERS,
        'np.where(appended, rows["max_timestamp"], rows["base_timestamp"] + deltas)',
        'rows["base_timestamp"] + deltas',
    ),
    BrokenRule(
        "markers: timestamp deltas are not looked at", HEADERS, 'rows["base_timestamp"] + deltas)', 'rows["base_timestamp"])'
    ),
    BrokenRule(
        "markers: any type of a control record ends a transaction",
        ROWS,
        "if type_id not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):",
        "if False:",
    ),
    BrokenRule("markers: a negative version of the key is taken", CONTROL_RECORD, "    if key[0] < 0:", "    if False:"),
    BrokenRule("markers: a negative version of the value is taken", CONTROL_RECORD, "    if version < 0:", "    if False:"),
    BrokenRule("effect: producer 0 is none", EFFECT, 'block.column("producer_id") >= 0)', 'block.column("producer_id") > 0)'),
    BrokenRule("effect: no wrap", EFFECT, "last = np.where(last >= SEQUENCES, last - SEQUENCES, last)", "pass"),
    BrokenRule(
        "effect: no sequence is a sequence",
        EFFECT,
        "return np.where(base_sequence == NONE, NONE, last).astype(np.int32)",
        "return last.astype(np.int32)",
    ),
    BrokenRule(
        "effect: beside others, empty control batches touch nobody",
        EFFECT,
        "return aligned(acting.effect(), touched)",
        "return acting.effect()",
    ),
    BrokenRule(
        "effect: alone, empty control batches touch nobody",
        EFFECT,
        "return SegmentEffect(**identity_rows(touched), closes=NO_CLOSES)",
        "return IDENTITY",
    ),
    BrokenRule(
        "effect: a marker of an older epoch keeps the batch",
        EFFECT,
        "& (self.epoch != reference[self.group])",
        "& (self.epoch > reference[self.group])",
    ),
    BrokenRule(
        "effect: a marker of a newer epoch keeps the batch",
        EFFECT,
        "& (self.epoch != reference[self.group])",
        "& (self.epoch < reference[self.group])",
    ),
    BrokenRule(
        "effect: the batch is the first one of data",
        EFFECT,
        "return np.maximum.reduceat(self._where(mask, -1), self.starts)",
        "return np.minimum.reduceat(self._where(mask, len(self.rows) - 1), self.starts)",
    ),
    BrokenRule(
        "effect: a marker does not end the transaction",
        EFFECT,
        'columns["txn_is_set"] = last_marker != NONE',
        'columns["txn_is_set"] = last_marker == 10**9',
    ),
    BrokenRule(
        "effect: data outside of a transaction of the block is taken",
        EFFECT,
        '("fail_always", outside & is_open)',
        '("fail_always", outside & False)',
    ),
    BrokenRule(
        "effect: data outside of an incoming transaction is taken",
        EFFECT,
        '("fail_open", outside & ~is_open & in_first_stretch)',
        '("fail_open", outside & False)',
    ),
    BrokenRule(
        "effect: plain data outside of an incoming transaction is taken",
        EFFECT,
        'columns["fail_open"][plain] = first_offset',
        "pass",
    ),
    BrokenRule(
        "effect: a marker has the timestamp of the header",
        EFFECT,
        'columns["timestamp"][closing] = self.block.marker_timestamp[self.marker[self.ends[closing]]]',
        "pass",
    ),
    BrokenRule(
        "effect: only a marker at the end has a coordinator epoch",
        EFFECT,
        "marked = last_marker != NONE",
        "marked = self.is_marker[self.ends]",
    ),
    BrokenRule(
        "composition: a marker of another epoch keeps the batch of before",
        COMPOSE,
        "((a.batch == SET) & (a.epoch != b.batch_epoch))",
        "((a.batch == SET) & False)",
    ),
    BrokenRule(
        "composition: markers that disagree keep the batch",
        COMPOSE,
        "((a.batch == IF) & (a.batch_epoch != b.batch_epoch))",
        "((a.batch == IF) & False)",
    ),
    BrokenRule(
        "composition: the newest first offset stays",
        COMPOSE,
        "kept = np.where(a_open, a.txn_first_offset, b.txn_first_offset)",
        "kept = np.where(b.txn_first_offset != NONE, b.txn_first_offset, a.txn_first_offset)",
    ),
    BrokenRule(
        "composition: the coordinator epoch goes with the epoch",
        COMPOSE,
        "np.where(marked, b.coordinator_epoch, a.coordinator_epoch)",
        "np.where(assigned, b.coordinator_epoch, a.coordinator_epoch)",
    ),
    BrokenRule(
        "composition: an open transaction does not fail",
        COMPOSE,
        "now_fails = np.where(a_open, b.fail_open, NONE)",
        "now_fails = np.full(len(a_open), NONE)",
    ),
    BrokenRule(
        "composition: one that may come in does not fail",
        COMPOSE,
        "still_open_fails = np.where(~a_open & ~a.txn_is_set, b.fail_open, NONE)",
        "still_open_fails = np.full(len(a_open), NONE)",
    ),
    BrokenRule(
        "composition: timestamps only rise",
        COMPOSE,
        "np.where(assigned, b.timestamp, a.timestamp)",
        "np.where(assigned, np.maximum(b.timestamp, a.timestamp), a.timestamp)",
    ),
    BrokenRule(
        "composition: an open transaction of before does not fail",
        RUNNING,
        "*failing[failing != NONE].tolist())",
        ")",
    ),
)
"""Of the fold, of what both read, and of the parallel engine."""
