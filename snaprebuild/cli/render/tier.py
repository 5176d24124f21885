"""Copies in remote storage as the verbs `tier inventory`, `tier audit`, `tier repair` and the undo of a repair show them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from formats.partition.partition_metadata import uuid_from_text, uuid_text_or_none, uuid_to_text
from snaprebuild.broker.status import counted_status
from snaprebuild.cli.answer import COPIES, given_words, repeated_words, selects_nothing
from snaprebuild.cli.printing import newest_run_text, print_table, print_text, print_undo
from snaprebuild.cli.render.status import LIVE_UNKNOWN, answer_lines, copy_counts, faults_text, nothing_read
from snaprebuild.cli.value_text import id_labels, size_text, time_text
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.documents import tier as doc
from snaprebuild.findings import Finding, pluralize
from snaprebuild.replay.window import Clock
from snaprebuild.shell_words import program_command, shell_word
from snaprebuild.snapshots.run import run_record
from snaprebuild.storage.partition_names import named
from snaprebuild.tier import AuditLevel
from snaprebuild.tier.audit.audited_copy import IDENTIFYING, AuditedObject
from snaprebuild.tier.audit.partition_audit import WRONG, CopyAudit, PartitionAudit, SnapshotVerdict, StoreAudit, verdict_counts
from snaprebuild.tier.inventory.inventory import SERVING
from snaprebuild.tier.inventory.model import BucketReport, TierInventory
from snaprebuild.tier.ledger.progress import LedgerProgress
from snaprebuild.tier.repair.repair import StoreRepair, would_repair
from snaprebuild.tier.repair.repaired_copy import ObjectPart, RepairAction, RepairedCopy, repair_totals
from snaprebuild.tier.repair.undo import StoreUndo

__all__ = ["RepairUndoView", "TierAuditView", "TierInventoryView", "TierRepairView"]

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


def _id_labels(topics: Iterable[tuple[str, str]]) -> dict[tuple[str, str | None], str]:
    """``id_labels`` of topics whose ids are texts."""
    labels = id_labels((topic, uuid_from_text(topic_id)) for topic, topic_id in topics)
    return {(topic, uuid_text_or_none(topic_id)): label for (topic, topic_id), label in labels.items()}


# ---------------------------------------------------------------------------------------------------------------- inventory


class TierInventoryView(View):
    """The copies of a store."""

    prints_notes = True
    names_unread = True

    def __init__(self, inventory: TierInventory, findings: Sequence[Finding], key_files: Sequence[str] = ()) -> None:
        """Takes the result, and the files of private keys that the command line names."""
        super().__init__(findings)
        self._inventory = inventory
        self._key_files = key_files

    def document(self) -> TierInventory:
        return self._inventory

    def answer(self) -> Answer:
        """The copies by state, and the audit, which compares their snapshots."""
        inventory = self._inventory
        if selects_nothing(self.findings) and not inventory.partitions:
            return nothing_read(self.findings)
        status = counted_status(inventory.counts)
        states = Counter(copy.state for each in inventory.partitions for copy in each.copies)
        copies = ", ".join(f"{count} {state.value}" for state, count in sorted(states.items()))
        gaps = sum(len(each.gaps) for each in inventory.partitions)
        healthy = f"{pluralize(gaps, 'gap')} between copies" if gaps else "No copy damaged"
        head = copy_counts(status, pluralize(len(inventory.partitions), "partition"), healthy, judges_snapshots=False)
        tail = "" if inventory.verified else LIVE_UNKNOWN
        return answer_lines(status, self.findings, [head], [f"Copies: {copies or 'none'}."], tail), self._following()

    def _following(self) -> Sequence[str] | Advice:
        copies = [copy for each in self._inventory.partitions for copy in each.copies]
        if not any(copy.stored_bytes for copy in copies):
            return []
        keys = sorted({copy.key_id for copy in copies if copy.key_id is not None})
        audit = ("tier", "audit", *given_words(*COPIES))
        if keys and not self._key_files:
            named = " ".join(f"--set private_key={shell_word(each)}=FILE" for each in keys)
            return Advice(f"run {program_command(audit)} {named}, with the files of the private keys")
        return audit

    def print_table(self) -> None:
        inventory = self._inventory
        rows = []
        ids = _id_labels((each.topic, each.topic_id) for each in inventory.partitions)
        for each in inventory.partitions:
            label = each.topic_partition + ids.get((each.topic, each.topic_id), "")
            serving = [copy for copy in each.copies if copy.state in SERVING]
            ends = [copy.end_offset for copy in serving if copy.end_offset is not None]
            first = next((copy.start_offset for copy in serving), "-")
            states = ", ".join(f"{count} {state.value}" for state, count in sorted(each.counts.items()))
            gaps = pluralize(len(each.gaps), "gap") if each.gaps else "-"
            if not each.gaps and len(ends) < len(serving):
                gaps = "unknown"
            stored = size_text(each.stored_bytes)
            rows.append((label, each.layout or "-", first, max(ends, default="-"), stored, gaps, states))
        print_table(
            "Bytes by state",
            ("state", "copies", "objects", "stored"),
            [*_state_rows(inventory), *_hidden_rows(inventory.bucket)],
            right=("copies", "objects", "stored"),
        )
        columns = ("partition", "layout", "from offset", "to offset", "stored", "gaps", "copies")
        print_table("Remote storage", columns, rows, right=("from offset", "to offset", "stored"), drop=("layout",))
        stored = size_text(sum(each.stored_bytes for each in inventory.partitions))
        copies = pluralize(sum(len(each.copies) for each in inventory.partitions), "copy", "copies")
        print_text(f"{pluralize(len(inventory.partitions), 'partition')}, {copies} of segments, {stored}")


def _state_rows(inventory: TierInventory) -> list[tuple[object, ...]]:
    """Copies, objects and bytes of each state."""
    return [(each.state, each.copies or "-", each.objects or "-", size_text(each.stored_bytes)) for each in inventory.states]


def _hidden_rows(bucket: BucketReport | None) -> list[tuple[object, ...]]:
    """Rows of the bucket that no listing of objects shows."""
    if bucket is None:
        return []
    rows: list[tuple[object, ...]] = []
    hidden = bucket.hidden
    if hidden is not None and hidden.noncurrent_versions:
        rows.append(("noncurrent versions", "-", hidden.noncurrent_versions, size_text(hidden.noncurrent_bytes)))
    if hidden is not None and hidden.delete_markers:
        rows.append(("delete markers", "-", hidden.delete_markers, "-"))
    unfinished = bucket.unfinished_uploads
    if unfinished is not None and unfinished.uploads:
        size = "-" if unfinished.part_bytes is None else size_text(unfinished.part_bytes)
        rows.append(("multipart uploads", "-", unfinished.uploads, size))
    return rows


# ---------------------------------------------------------------------------------------------------------------- audit


class TierAuditView(View):
    """The snapshots of a store, with their verdicts."""

    names_unread = True

    def __init__(self, audit: StoreAudit, clock: Clock, seconds: float, start_concerns: Sequence[Finding]) -> None:
        """Takes the result.

        Args:
            audit: of the store.
            clock: for expiry.
            seconds: that it took.
            start_concerns: about the log directories that were named.
        """
        super().__init__([*audit.findings, *start_concerns])
        self._audit = audit
        self._clock = clock
        self._seconds = seconds

    def document(self) -> doc.TierAudit:
        audit = self._audit
        status = audit.status(self.findings)
        return doc.TierAudit(
            run=run_record(),
            location=audit.location,
            level=audit.level,
            verified=audit.verified,
            as_of_ms=self._clock.as_of_ms,
            expiration_ms=self._clock.expiration_ms,
            elapsed_seconds=round(self._seconds, 4),
            estimate=audit.cost,
            totals=_audit_totals(audit.partitions),
            partitions=[_audited_partition(each) for each in audit.partitions],
            status=status.word.value,
            counts=status.counts,
            ledger=audit.ledger,
        )

    def answer(self) -> Answer:
        """The verdicts with their counts; a replay of everything if less was read, or the repair of what is wrong."""
        audit = self._audit
        if selects_nothing(self.findings) and not audit.partitions:
            return nothing_read(self.findings)
        status = audit.status(self.findings)
        head = copy_counts(status, pluralize(len(audit.partitions), "partition"), "No snapshot wrong")
        if audit.foreign_producers:
            partitions = pluralize(len(audit.foreign_producers), "partition has", "partitions have")
            head = f"{partitions} producer ids that the cluster gives out again. {head}"
        if audit.ledger is not None:
            head = f"{_proven_text(audit.ledger)}. {head}"
        tail = "" if audit.verified else LIVE_UNKNOWN
        totals = f"Snapshots: {_totals_text(audit.partitions) or 'none'}."
        if audit.level is AuditLevel.RECORDS:
            totals = f"{totals} Records decoded: {sum(each.records_read or 0 for each in audit.partitions)}."
        return answer_lines(status, self.findings, [head], [totals], tail), self._following()

    def _following(self) -> Sequence[str] | Advice:
        audit = self._audit
        status = audit.status(self.findings)
        selected = given_words(*COPIES)
        if not audit.level.replays_everything:
            # Which of them are wrong, and what is right, all segments show.
            if status.wrong or status.suspect or status.unproven:
                return ["tier", "audit", *selected]
            return []
        if not status.wrong:
            left = 0 if audit.ledger is None else audit.ledger.due_segments
            if left:
                return Advice(f"run this command again, {pluralize(left, 'segment')} of this round left to read")
            return []
        repairable = [each for each in audit.partitions if would_repair(each)]
        if not repairable:
            return []
        unverified = [] if all(each.remote.verified for each in repairable) else ["--allow-unverified"]
        return ["tier", "repair", *selected, *unverified, "--dry-run"]

    def print_table(self) -> None:
        partitions = self._audit.partitions
        rows = []
        wrong = []
        ids = id_labels((each.remote.id.topic, each.remote.id.topic_id) for each in partitions)
        for each in sorted(partitions, key=lambda one: -sum(copy.verdict in WRONG for copy in one.copies)):
            label = each.name + ids.get((each.remote.id.topic, each.remote.id.topic_id), "")
            rows.append((label, each.remote.layout, len(each.copies), size_text(each.read_bytes), _totals_text([each]) or "-"))
            wrong += [_wrong_row(label, copy) for copy in each.copies if copy.verdict in WRONG]
        if wrong:
            columns = ("partition", "from offset", "segment", "snapshot is", "producers", "why")
            print_table("Wrong snapshots", columns, wrong, right=("from offset",), drop=("segment", "producers"))
        if rows:
            names = ("partition", "layout", "copies", "read", "snapshots")
            print_table("Snapshots in remote storage", names, rows, right=("copies", "read"), drop=("layout", "read"))


def _proven_text(progress: LedgerProgress) -> str:
    """How many snapshots are proven, and since when."""
    since = "" if progress.since_ms is None else f" since {time_text(progress.since_ms)[:10]}"
    return f"Proven {progress.proven} of {pluralize(progress.copies, 'snapshot')}{since}"


def _audit_totals(partitions: Sequence[PartitionAudit]) -> doc.AuditTotals:
    counts = verdict_counts(partitions)
    return msgspec.convert({verdict.value: counts[verdict] for verdict in SnapshotVerdict}, doc.AuditTotals)


def _totals_text(partitions: Sequence[PartitionAudit]) -> str:
    """The counts that are not 0."""
    counts = verdict_counts(partitions)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in SnapshotVerdict if counts[verdict])


def _wrong_row(label: str, copy: CopyAudit) -> tuple[object, ...]:
    entries = "-" if copy.expected_entries is None else f"{copy.entries} of {copy.expected_entries}"
    return label, copy.copy.start_offset, uuid_to_text(copy.copy.segment_id), copy.verdict, entries, copy.reason


def _audited_partition(partition: PartitionAudit) -> doc.AuditedPartition:
    damaged = {id(copy) for copy in partition.damaged_copies}
    return doc.AuditedPartition(
        **named(partition.remote.id.topic, partition.remote.id.partition),
        topic_id=uuid_to_text(partition.remote.id.topic_id),
        layout=partition.remote.layout,
        read_bytes=partition.read_bytes,
        records_read=partition.records_read,
        replayed_from_offset=partition.replayed_from_offset,
        local_log_start_offset=partition.local_log_start_offset,
        totals=_audit_totals([partition]),
        copies=[_audited_copy(copy, is_damaged=id(copy) in damaged) for copy in partition.copies],
        damaged_from_offset=partition.damaged_at,
    )


def _audited_copy(copy: CopyAudit, *, is_damaged: bool) -> doc.AuditedCopy:
    is_wrong = copy.verdict in WRONG
    objects = copy.copy.objects.by_kind
    return doc.AuditedCopy(
        segment_id=uuid_to_text(copy.copy.segment_id),
        start_offset=copy.copy.start_offset,
        end_offset=copy.copy.end_offset,
        stored_bytes=copy.copy.objects.size_bytes,
        verdict=copy.verdict,
        reason=copy.reason,
        entries=copy.entries,
        expected_entries=copy.expected_entries,
        difference_count=copy.difference_count,
        differences=copy.differences,
        proof_kind=copy.proof,
        proven_ms=copy.proven_ms,
        objects=[AuditedObject.of(kind, objects[kind].identity) for kind in IDENTIFYING[copy.copy.layout] if kind in objects],
        is_damaged=is_damaged,
        is_exact=copy.is_exact and not is_wrong,
        right_sha256=copy.right_sha256 if is_wrong else None,
        unproven_reason=copy.unproven if is_wrong and copy.right_sha256 is None else "",
    )


# ---------------------------------------------------------------------------------------------------------------- repair and its undo


class TierRepairView(View):
    """The snapshots of a store that were repaired, or that would be."""

    names_unread = True

    def __init__(self, repair: StoreRepair, clock: Clock) -> None:
        super().__init__(repair.findings)
        self._repair = repair
        self._clock = clock

    @property
    def _has_effect(self) -> bool:
        """Whether anything was written, or would be."""
        effective = (RepairAction.REPAIRED, RepairAction.WOULD_REPAIR, RepairAction.UNKNOWN)
        return any(each.action in effective for each in self._repair.copies)

    def document(self) -> doc.TierRepair:
        repair = self._repair
        return doc.TierRepair(
            location=repair.audit.location,
            dry_run=repair.dry_run,
            undone_receipt=None,
            receipt=repair.receipt,
            verified=repair.audit.verified,
            as_of_ms=self._clock.as_of_ms,
            expiration_ms=self._clock.expiration_ms,
            totals=repair_totals(repair.copies),
            copies=repair.copies,
            effect=EFFECT if self._has_effect else (),
            status=repair.status.word.value,
            counts=repair.status.counts,
        )

    def answer(self) -> Answer:
        """The repairs of the wrong snapshots, and what is left; the repair after a dry run, or the audit after a repair."""
        repair = self._repair
        status = repair.status
        if selects_nothing(self.findings) and not repair.audit.partitions:
            return nothing_read(self.findings)
        if repair.copies:
            actions = f"{pluralize(len(repair.copies), 'wrong snapshot')}: {_actions_text(repair.copies)}"
            head = f"{faults_text(status)}{_dry_text(dry_run=repair.dry_run)}{actions}"
            return answer_lines(status, self.findings, [head, f"{faults_text(status)}{actions}"], []), self._following()
        head = copy_counts(status, pluralize(len(repair.audit.partitions), "partition"), "Nothing to repair")
        extra = [
            "" if head.startswith("Nothing") else "Nothing to repair.",
            f"Snapshots: {_totals_text(repair.audit.partitions) or 'none'}.",
        ]
        return answer_lines(status, self.findings, [head], extra), self._following()

    def _following(self) -> Sequence[str] | Advice:
        actions = {each.action for each in self._repair.copies}
        if RepairAction.WOULD_REPAIR in actions:
            return ["tier", "repair", *repeated_words("dry_run")]
        if actions & {RepairAction.REPAIRED, RepairAction.UNKNOWN}:
            return ["tier", "audit", *given_words(*COPIES)]
        if self._repair.needs_permission or RepairAction.REFUSED in actions:
            return AGAIN
        return []

    def print_table(self) -> None:
        ids = _id_labels((each.remote.id.topic, uuid_to_text(each.remote.id.topic_id)) for each in self._repair.audit.partitions)
        rows = []
        for each in self._repair.copies:
            reason = each.reason or ("appended by an earlier run" if each.appended_bytes == 0 else "-")
            label = each.topic_partition + ids.get((each.topic, each.topic_id), "")
            old = _place_text(each.old_place)
            new = _place_text(each.place)
            rows.append((label, each.start_offset, each.verdict, each.action, old, new, reason))
        if rows:
            columns = ("partition", "from offset", "snapshot is", "action", "snapshot", "right one", "because")
            print_table(None, columns, rows, right=("from offset",), drop=("snapshot", "right one", "snapshot is"))
        if self._has_effect:
            for text in EFFECT:
                print_text(text)
        print_undo(self._repair.receipt)


def _place_text(place: ObjectPart | None) -> str:
    return "-" if place is None else f"{place.size_bytes} B at {place.position}"


def _dry_text(*, dry_run: bool) -> str:
    return "Dry run: nothing was written. " if dry_run else ""


def _actions_text(copies: Sequence[RepairedCopy]) -> str:
    actions = Counter(each.action for each in copies)
    return ", ".join(f"{count} {action.value}" for action, count in actions.items())


class RepairUndoView(View):
    """The copies that `undo` restored."""

    def __init__(self, undo: StoreUndo, *, is_last: bool = False) -> None:
        """Takes the result, and whether its receipt was found by ``--last``."""
        super().__init__(undo.findings)
        self._is_last = is_last
        self._undo = undo

    def document(self) -> doc.TierRepair:
        undo = self._undo
        return doc.TierRepair(
            location=undo.location,
            dry_run=undo.dry_run,
            undone_receipt=undo.undone_receipt,
            receipt=None,
            verified=None,
            as_of_ms=None,
            expiration_ms=None,
            totals=repair_totals(undo.copies),
            copies=undo.copies,
            effect=[EFFECT[0], UNDONE_EFFECT] if undo.copies else [],
        )

    def answer(self) -> Answer:
        undo = self._undo
        actions = Counter(each.action for each in undo.copies)
        totals = _actions_text(undo.copies) or "nothing to take back"
        answer = f"{_dry_text(dry_run=undo.dry_run)}{pluralize(len(undo.copies), 'repair')}: {totals}."
        if self._is_last:
            answer += f"\n{newest_run_text('`tier repair`', undo.undone_receipt)}"
        if undo.dry_run and actions[RepairAction.WOULD_RESTORE]:
            return answer, ["undo", *repeated_words("dry_run")]
        if undo.dry_run or not actions[RepairAction.RESTORED]:
            return answer, []
        return answer, ["tier", "audit", undo.location]

    def print_table(self) -> None:
        rows = [(each.topic_partition, each.start_offset, each.action, each.reason or "-") for each in self._undo.copies]
        if rows:
            print_table(None, ("partition", "from offset", "manifest", "because"), rows, right=("from offset",))
            print_text(EFFECT[0])
            print_text(UNDONE_EFFECT)
