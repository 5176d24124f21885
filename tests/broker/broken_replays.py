"""Our replays with one rule broken: what both of them read, the fold, and the parallel engine."""

from __future__ import annotations

from broken_code import broken_codes

REPLAY, LOG = "snaprebuild.replay", "formats.log"

_BY_MODULE = {
    f"{REPLAY}.reference.producer_state": {
        "fold: no wrap": ("return last - 2**31 if last > 2**31 - 1 else last", "return last"),
        "fold: the wrap comes one too early": ("if last > 2**31 - 1 else last", "if last >= 2**31 - 1 else last"),
        "fold: no sequence is a sequence": ("if base_sequence == -1:", "if base_sequence == -2:"),
        "fold: an empty control batch of an unknown producer leaves nothing": (
            "                self.entries[batch.producer_id] = entry\n                return None",
            "                return None",
        ),
        "fold: an empty control batch ends the transaction": (
            "                self.entries[batch.producer_id] = entry\n",
            "                self.entries[batch.producer_id] = replace(entry, current_txn_first_offset=-1)\n",
        ),
        "fold: data outside of its transaction is taken": ("if first >= 0 and not batch.is_transactional:", "if False:"),
        "fold: every batch of a transaction opens it": (
            "if first < 0 and batch.is_transactional:",
            "if batch.is_transactional:",
        ),
        "fold: nothing opens a transaction": ("if first < 0 and batch.is_transactional:", "if False:"),
        "fold: another epoch opens the transaction anew": (
            "if first < 0 and batch.is_transactional:",
            "if (first < 0 or batch.epoch != entry.epoch) and batch.is_transactional:",
        ),
        "fold: data of an older epoch is refused": ("epoch=batch.epoch,", "epoch=max(entry.epoch, batch.epoch),"),
        "fold: timestamps of data only rise": (
            "timestamp=batch.max_timestamp",
            "timestamp=max(entry.timestamp, batch.max_timestamp)",
        ),
        "fold: the last offset is the base offset": (
            "last_offset=batch.base_offset + batch.last_offset_delta",
            "last_offset=batch.base_offset",
        ),
        "fold: data of another epoch forgets the coordinator epoch": (
            "timestamp=batch.max_timestamp,",
            "timestamp=batch.max_timestamp, coordinator_epoch=entry.coordinator_epoch if batch.epoch == entry.epoch else -1,",
        ),
        "fold: a marker of an older epoch is refused": ("epoch=marker.epoch,", "epoch=max(entry.epoch, marker.epoch),"),
        "fold: coordinator epochs only rise": (
            "coordinator_epoch=marker.coordinator_epoch",
            "coordinator_epoch=max(entry.coordinator_epoch, marker.coordinator_epoch)",
        ),
        "fold: a commit leaves the transaction open": (
            "        current_txn_first_offset=-1,\n    )",
            "        current_txn_first_offset=entry.current_txn_first_offset if marker.is_commit else -1,\n    )",
        ),
        "fold: a marker of an older epoch keeps the batch": (
            "if marker.epoch != entry.epoch:",
            "if marker.epoch > entry.epoch:",
        ),
        "fold: a marker of a newer epoch keeps the batch": (
            "if marker.epoch != entry.epoch:",
            "if marker.epoch < entry.epoch:",
        ),
        "fold: a marker of the same epoch drops the batch": ("if marker.epoch != entry.epoch:", "if True:"),
        "fold: a marker keeps the timestamp": ("timestamp=marker.timestamp,", "timestamp=entry.timestamp,"),
        "fold: aborts are commits": ("batch.offset, not batch.is_commit)", "batch.offset, batch.is_commit)"),
        "fold: the transaction that ends holds the last stable offset": (
            "if producer_id != completed.producer_id)",
            "if True)",
        ),
        "fold: producer 0 is none": ("if header.producer_id < 0:", "if header.producer_id <= 0:"),
    },
    "ours": {
        "fold: by the segment": ("state.append(producer_batches(block)):", "state.append_chunk(producer_batches(block)):"),
    },
    f"{LOG}.batch_headers": {
        "markers: log append time is not looked at": (
            'np.where(appended, rows["max_timestamp"], rows["base_timestamp"] + deltas)',
            'rows["base_timestamp"] + deltas',
        ),
        "markers: timestamp deltas are not looked at": ('rows["base_timestamp"] + deltas)', 'rows["base_timestamp"])'),
    },
    f"{LOG}.batch_rows": {
        "markers: any type of a control record ends a transaction": (
            "if type_id not in (ControlRecordType.ABORT, ControlRecordType.COMMIT):",
            "if False:",
        ),
    },
    f"{LOG}.control_record": {
        "markers: a negative version of the key is taken": ("    if key[0] < 0:", "    if False:"),
        "markers: a negative version of the value is taken": ("    if version < 0:", "    if False:"),
    },
    f"{REPLAY}.block_effect": {
        "effect: producer 0 is none": ('block.column("producer_id") >= 0)', 'block.column("producer_id") > 0)'),
        "effect: no wrap": ("last = np.where(last >= SEQUENCES, last - SEQUENCES, last)", "pass"),
        "effect: no sequence is a sequence": (
            "return np.where(base_sequence == NONE, NONE, last).astype(np.int32)",
            "return last.astype(np.int32)",
        ),
        "effect: beside others, empty control batches touch nobody": (
            "return aligned(acting.effect(), touched)",
            "return acting.effect()",
        ),
        "effect: alone, empty control batches touch nobody": (
            "return SegmentEffect(**identity_rows(touched), closes=NO_CLOSES)",
            "return IDENTITY",
        ),
        "effect: a marker of an older epoch keeps the batch": (
            "& (self.epoch != reference[self.group])",
            "& (self.epoch > reference[self.group])",
        ),
        "effect: a marker of a newer epoch keeps the batch": (
            "& (self.epoch != reference[self.group])",
            "& (self.epoch < reference[self.group])",
        ),
        "effect: the batch is the first one of data": (
            "return np.maximum.reduceat(self._where(mask, -1), self.starts)",
            "return np.minimum.reduceat(self._where(mask, len(self.rows) - 1), self.starts)",
        ),
        "effect: a marker does not end the transaction": (
            'columns["txn_is_set"] = last_marker != NONE',
            'columns["txn_is_set"] = last_marker == 10**9',
        ),
        "effect: data outside of a transaction of the block is taken": (
            '("fail_always", outside & is_open)',
            '("fail_always", outside & False)',
        ),
        "effect: data outside of an incoming transaction is taken": (
            '("fail_open", outside & ~is_open & in_first_stretch)',
            '("fail_open", outside & False)',
        ),
        "effect: plain data outside of an incoming transaction is taken": (
            'columns["fail_open"][plain] = first_offset',
            "pass",
        ),
        "effect: a marker has the timestamp of the header": (
            'columns["timestamp"][closing] = self.block.marker_timestamp[self.marker[self.ends[closing]]]',
            "pass",
        ),
        "effect: only a marker at the end has a coordinator epoch": (
            "marked = last_marker != NONE",
            "marked = self.is_marker[self.ends]",
        ),
    },
    f"{REPLAY}.segment_effect": {
        "composition: a marker of another epoch keeps the batch of before": (
            "((a.batch == SET) & (a.epoch != b.batch_epoch))",
            "((a.batch == SET) & False)",
        ),
        "composition: markers that disagree keep the batch": (
            "((a.batch == IF) & (a.batch_epoch != b.batch_epoch))",
            "((a.batch == IF) & False)",
        ),
        "composition: the newest first offset stays": (
            "kept = np.where(a_open, a.txn_first_offset, b.txn_first_offset)",
            "kept = np.where(b.txn_first_offset != NONE, b.txn_first_offset, a.txn_first_offset)",
        ),
        "composition: the coordinator epoch goes with the epoch": (
            "np.where(marked, b.coordinator_epoch, a.coordinator_epoch)",
            "np.where(assigned, b.coordinator_epoch, a.coordinator_epoch)",
        ),
        "composition: an open transaction does not fail": (
            "now_fails = np.where(a_open, b.fail_open, NONE)",
            "now_fails = np.full(len(a_open), NONE)",
        ),
        "composition: one that may come in does not fail": (
            "still_open_fails = np.where(~a_open & ~a.txn_is_set, b.fail_open, NONE)",
            "still_open_fails = np.full(len(a_open), NONE)",
        ),
        "composition: timestamps only rise": (
            "np.where(assigned, b.timestamp, a.timestamp)",
            "np.where(assigned, np.maximum(b.timestamp, a.timestamp), a.timestamp)",
        ),
    },
    f"{REPLAY}.running_effect": {
        "composition: an open transaction of before does not fail": ("*failing[failing != NONE].tolist())", ")"),
    },
}
BROKEN_RULES = broken_codes(_BY_MODULE)
