"""Why a late transaction is open: what the coordinator's records, this log and the elections of its partition prove together.

The coordinator writes a record before each step (``TransactionCoordinator``). A transaction begins with a record that is ongoing, and a
partition is in such a record before the first batch of the transaction is in that partition. The outcome is in a prepared record, then
the markers are written, and a complete record follows when the leader of each partition has acknowledged its marker.

Proofs that a transaction is over, so that no marker will come from its coordinator:

* The newest record of its transactional id has a later epoch or another producer id, or is a tombstone.
* The newest record has the same epoch, and does not hold the partition. Then the copy of the coordinator's log must not end before the
  last batch was written here. By the clocks of brokers, that is: a client may give its records any time, such as that of an event.

A newest record that holds the partition always counts as alive, as in ``kafka-transactions.sh find-hanging``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from formats.metadata.transaction_state import TRANSACTION_STATE_TOPIC, TransactionState, TransactionStatus
from snaprebuild.cluster.metadata.leadership import Leadership, Leaderships, RecordedElection
from snaprebuild.inspect.coordinator_records import CoordinatorHistory, StateRecord
from snaprebuild.published import Natural, Part

__all__ = [
    "CoordinatorEvidence",
    "HangExplanation",
    "HangReason",
    "LastMarker",
    "LateTransaction",
    "TransactionEvidence",
    "explain_transaction",
]


class HangReason(StrEnum):
    """Why a late transaction is open."""

    WITHIN_TIMEOUT = "within_timeout"
    """The coordinator has it, and its timeout has not ended."""
    OVER_TIMEOUT = "over_timeout"
    """The coordinator has it, its timeout has ended, and nothing aborted it."""
    MARKER_PENDING = "marker_pending"
    """The outcome is decided, and the coordinator tries to write the marker."""
    MARKER_LOST = "marker_lost"
    """The marker was acknowledged, and an unclean election lost it (KAFKA-20716)."""
    MARKER_MISSING = "marker_missing"
    """The transaction is over, the marker is not in this log, and nothing shows how it was lost."""
    LATE_APPEND = "late_append"
    """Batches that were written after the end of their transaction, or outside of it (KIP-890)."""
    INCOMPLETE_REPLICA = "incomplete_replica"
    """This replica may lack a marker that its leader has."""
    UNKNOWN = "unknown"


class TransactionEvidence(Part, frozen=True):
    """A fact, and where it is."""

    path: str
    """Log, file or directory that shows it."""
    offset: Natural | None
    """Offset in that log."""
    timestamp_ms: int | None
    what: str
    """For the user; not stable."""


@dataclass(frozen=True, slots=True)
class HangExplanation:
    """Why a late transaction is open.

    Attributes:
        hang_reason: the kind of reason.
        reason: one or two sentences for the user.
        facts: the facts that show the reason, the oldest first.
        missing_evidence: what would show more, for the user; None if nothing is missing.
        may_abort: it is proven that the transaction is over, and that this replica leads. Then nothing but an abort ends it.
    """

    hang_reason: HangReason
    reason: str
    facts: tuple[TransactionEvidence, ...] = ()
    missing_evidence: str | None = None
    may_abort: bool = False


@dataclass(frozen=True, slots=True)
class LastMarker:
    """The last marker of a producer before its open transaction: its offset, and its timestamp in ms."""

    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class LateTransaction:
    """A late transaction and its replica.

    Attributes:
        path: of the partition directory.
        topic: of the partition.
        partition: its number.
        topic_id: 16 bytes; None if the directory has none.
        node_id: of the broker whose directory it is; None if that is unknown.
        producer_id: of the transaction.
        epoch: of its last batch.
        first_offset: of its first batch.
        last_ms: timestamp of its last batch, or None.
        log_end_offset: of this replica.
        high_watermark: of the checkpoint of this broker; None without one.
        marker: the last marker of the producer below ``first_offset``, or None.
        longer_copy: path of another copy that was read, is longer, and does not have the transaction open; None if there is none.
        is_read_whole: no batch of this replica is damaged or missing.
        appended_by_ms: by the clock of a broker, when the last batch had been written at the latest; None if that is unknown.
        leader_epoch: of the newest batch of this replica that was read for this, of any producer; None if that is unknown.
    """

    path: str
    topic: str
    partition: int
    topic_id: bytes | None
    node_id: int | None
    producer_id: int
    epoch: int
    first_offset: int
    last_ms: int | None
    log_end_offset: int
    high_watermark: int | None = None
    marker: LastMarker | None = None
    longer_copy: str | None = None
    is_read_whole: bool = True
    appended_by_ms: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CoordinatorEvidence:
    """Facts about a late transaction that are not in the log of its partition.

    Attributes:
        as_of_ms: the time of the question.
        history: of the transactional id of the producer; None if it is not known, or cannot be trusted.
        state_partitions: numbers of the partitions of ``__transaction_state`` that were read.
        unread_states: paths of the partitions of ``__transaction_state`` that could not be read to their end.
        leaderships: from the metadata log; None without one.
    """

    as_of_ms: int
    history: CoordinatorHistory | None = None
    state_partitions: frozenset[int] = frozenset()
    unread_states: frozenset[str] = frozenset()
    leaderships: Leaderships | None = None


def explain_transaction(late: LateTransaction, evidence: CoordinatorEvidence) -> HangExplanation:
    """Why a late transaction is open."""
    incomplete = _proven_incomplete(late)
    if incomplete is not None:
        return incomplete
    if evidence.history is None and evidence.unread_states:
        text = "Records of the coordinators cannot be read, and may name its producer."
        names = ", ".join(sorted({os.path.basename(path) for path in evidence.unread_states}))
        return HangExplanation(HangReason.UNKNOWN, text, missing_evidence=f"a whole copy of {names} (--transaction-state DIR)")
    if evidence.history is None:
        return HangExplanation(
            HangReason.UNKNOWN,
            "No record of a coordinator that was read names its producer.",
            missing_evidence=_states_to_read(evidence),
        )
    return _Diagnosis(late, evidence, evidence.history).explanation()


def _proven_incomplete(late: LateTransaction) -> HangExplanation | None:
    """An explanation if this replica lacks records that were committed, by other files than those of the coordinator."""
    if late.longer_copy is not None:
        fact = TransactionEvidence(
            late.longer_copy, None, None, "another copy of this partition is longer, and ended the transaction"
        )
        return HangExplanation(HangReason.INCOMPLETE_REPLICA, "This replica lacks the marker, and another copy has it.", (fact,))
    if late.high_watermark is not None and late.high_watermark > late.log_end_offset:
        what = f"the log ends at {late.log_end_offset}, below its high watermark {late.high_watermark}: records are missing here"
        fact = TransactionEvidence(late.path, late.log_end_offset, None, what)
        text = "This replica has lost its end, and the marker may have been in it."
        return HangExplanation(
            HangReason.INCOMPLETE_REPLICA, text, (fact,), missing_evidence="the directory of the leader of this partition"
        )
    if not late.is_read_whole:
        fact = TransactionEvidence(late.path, None, None, "batches of this log are damaged or missing")
        text = "This log could not be read whole, and the marker may be among what is missing."
        return HangExplanation(
            HangReason.INCOMPLETE_REPLICA, text, (fact,), missing_evidence="the directory of another replica of this partition"
        )
    return None


def _states_to_read(evidence: CoordinatorEvidence) -> str:
    """Which partitions of ``__transaction_state`` may name the producer."""
    if not evidence.state_partitions:
        return f"the partitions of {TRANSACTION_STATE_TOPIC} (--transaction-state DIR)"
    if evidence.leaderships is None:
        count = 0
    else:
        count = evidence.leaderships.partition_counts.get(TRANSACTION_STATE_TOPIC, 0)
    left = [number for number in range(count) if number not in evidence.state_partitions]
    if count and not left:
        return "the answer of the coordinators: the transactional id has expired, or the copies that were read are old"
    if not count:
        return f"the other partitions of {TRANSACTION_STATE_TOPIC} (--transaction-state DIR)"
    return f"the partitions {_numbers(left)} of {TRANSACTION_STATE_TOPIC} (--transaction-state DIR)"


def _numbers(numbers: Iterable[int]) -> str:
    """Ascending numbers, with ranges: ``0, 3-7``."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


class _Diagnosis:
    """The reason of one transaction whose transactional id is known."""

    def __init__(self, late: LateTransaction, evidence: CoordinatorEvidence, history: CoordinatorHistory) -> None:
        self._late = late
        self._evidence = evidence
        self._history = history
        self._leadership = self._leadership_of(late.topic, late.partition)
        if self._leadership is not None and late.topic_id != self._leadership.topic_id:
            self._leadership = None
        self._is_metadata_old = self._has_older_epoch(self._leadership)
        if self._is_metadata_old:
            self._leadership = None
        self._coordinator = self._leadership_of(TRANSACTION_STATE_TOPIC, history.directory.name.partition)

    def _leadership_of(self, topic: str, partition: int) -> Leadership | None:
        leaderships = self._evidence.leaderships
        return None if leaderships is None else leaderships.partitions.get((topic, partition))

    def _has_older_epoch(self, leadership: Leadership | None) -> bool:
        """Whether the metadata log ends before the election of the leader that wrote the last batch."""
        epoch = self._late.leader_epoch
        return leadership is not None and epoch is not None and leadership.state.leader_epoch < epoch

    def explanation(self) -> HangExplanation:
        """The reason, with its evidence."""
        newest = self._history.newest
        state = newest.state
        if state is None:
            return self._ended([self._fact(newest, "a tombstone: the transactional id has expired")])
        if state.has_partition(self._late.topic, self._late.partition):
            if state.status is TransactionStatus.ONGOING and state.producer_ids[:1] == (self._late.producer_id,):
                return self._ongoing(newest, state)
            if state.status.is_prepared and self._late.producer_id in state.producer_ids:
                return self._pending(newest, state)
        if not self._is_over(state):
            return self._too_old(newest, state)
        return self._ended([])

    # ------------------------------------------------------------------------------------------------- the coordinator has it

    def _ongoing(self, record: StateRecord, state: TransactionState) -> HangExplanation:
        began = state.started_ms if state.started_ms >= 0 else state.updated_ms
        timeout_ends_ms = began + state.timeout_ms
        facts = [self._fact(record, f"ongoing with this partition, timeout {state.timeout_ms} ms")]
        if self._evidence.as_of_ms <= timeout_ends_ms:
            text = "The coordinator has the transaction, and its timeout has not ended."
            return HangExplanation(HangReason.WITHIN_TIMEOUT, text, tuple(facts))
        history = self._history
        what = "the newest record of this copy of the coordinator's log"
        facts.append(TransactionEvidence(history.directory.path, history.end_offset - 1, history.newest_ms, what))
        missing, coordinator = self._coordinator_facts()
        text = "The timeout of the transaction has ended, and the coordinator has not aborted it."
        if history.newest_ms <= timeout_ends_ms:
            text = "The timeout of the transaction has ended, and no newer record shows whether the coordinator aborted it."
            missing = missing or f"a newer copy of {os.path.basename(history.directory.path)} (--transaction-state DIR)"
        return HangExplanation(HangReason.OVER_TIMEOUT, text, (*facts, *coordinator), missing)

    def _pending(self, record: StateRecord, state: TransactionState) -> HangExplanation:
        outcome = "commit" if state.status.is_commit else "abort"
        facts = [self._fact(record, f"{outcome} is decided, and the markers are not all written")]
        if self._leadership is not None and self._leadership.state.leader < 0:
            facts.append(self._leader_fact(self._leadership, f"{self._late.topic}-{self._late.partition}"))
        text = f"The coordinator decided to {outcome}, and tries to write the marker to this partition until that succeeds."
        missing, coordinator = self._coordinator_facts()
        return HangExplanation(HangReason.MARKER_PENDING, text, (*facts, *coordinator), missing)

    def _coordinator_facts(self) -> tuple[str | None, list[TransactionEvidence]]:
        """The missing evidence, and the leader of the partition of the coordinator."""
        name = os.path.basename(self._history.directory.path)
        if self._coordinator is None:
            return f"a metadata log (--metadata DIR): it shows whether {name} has a leader", []
        leader = self._coordinator.state.leader
        fact = self._leader_fact(self._coordinator, name)
        return None if leader < 0 else f"the log of broker {leader}, the coordinator", [fact]

    def _leader_fact(self, leadership: Leadership, name: str) -> TransactionEvidence:
        """The leader of a partition, since its last election."""
        assert self._evidence.leaderships is not None, "the leadership is from there"
        leader = leadership.state.leader
        what = f"{name} has no leader" if leader < 0 else f"broker {leader} leads {name}"
        last = leadership.elections[-1] if leadership.elections else None
        offset = None if last is None else last.offset
        return TransactionEvidence(self._evidence.leaderships.path, offset, None if last is None else last.timestamp_ms, what)

    # ------------------------------------------------------------------------------------------------------- is it over

    def _is_over(self, newest: TransactionState) -> bool:
        """Whether the transaction is over, by the newest record, which does not hold the partition for this producer."""
        late = self._late
        if newest.producer_ids[:1] != (late.producer_id,):
            return any(state.producer_ids[:1] == (late.producer_id,) for _, state in self._history.states())
        if newest.producer_epoch != late.epoch:
            return newest.producer_epoch > late.epoch
        if self._is_copy_of_leader():
            return True
        written_ms = late.appended_by_ms
        return written_ms is not None and self._history.newest_ms >= max(written_ms, late.last_ms or 0)

    def _is_copy_of_leader(self) -> bool:
        """Whether this broker leads the coordinator's partition, too: its copy, read after this log, has all that was before a batch."""
        if self._coordinator is None or self._coordinator.state.leader != self._late.node_id:
            return False
        return os.path.dirname(self._history.directory.path) == os.path.dirname(self._late.path)

    def _too_old(self, record: StateRecord, state: TransactionState) -> HangExplanation:
        what = f"the newest record of {state.transactional_id}: {state.status.name}, epoch {state.producer_epoch}"
        facts = [self._fact(record, what)]
        if self._late.appended_by_ms is not None:
            facts.append(
                TransactionEvidence(
                    self._late.path, None, self._late.appended_by_ms, "its last batch was written at this time or before"
                )
            )
        text = "The copy of the coordinator's log may end before the last batch of the transaction was written, so it may still be alive."
        missing = f"the copy of {os.path.basename(self._history.directory.path)} of its leader (--transaction-state DIR)"
        return HangExplanation(HangReason.UNKNOWN, text, tuple(facts), missing)

    # ------------------------------------------------------------------------------------------------------- it is over

    def _ended(self, facts: list[TransactionEvidence]) -> HangExplanation:
        """The transaction is over at its coordinator, and open here."""
        listing = self._listing()
        if listing is None:
            return self._ended_without_listing(facts)
        record, state = listing
        facts.append(self._fact(record, f"{state.status.name} with this partition"))
        marker = self._late.marker
        if marker is not None and marker.timestamp_ms >= state.started_ms >= 0:
            facts.append(TransactionEvidence(self._late.path, marker.offset, marker.timestamp_ms, "the marker of that transaction"))
            text = "The marker of its transaction is in this log, and its batches were written after it."
            return self._explained(HangReason.LATE_APPEND, text, facts)
        decision = self._decision(record, state)
        since_ms = state.updated_ms
        outcome = "ended"
        if decision is not None:
            facts.append(self._fact(decision[0], decision[1].status.name))
            since_ms = decision[1].updated_ms
            outcome = "committed" if decision[1].status.is_commit else "aborted"
        return self._without_marker(facts, since_ms, outcome)

    def _without_marker(self, facts: list[TransactionEvidence], since_ms: int, outcome: str) -> HangExplanation:
        """The marker was acknowledged by the leader of this partition, and is not in this log."""
        unclean = self._unclean_elections(since_ms)
        facts += [self._election_fact(each) for each in unclean]
        if unclean:
            text = f"The coordinator {outcome} the transaction, and an unclean election lost its marker (KAFKA-20716)."
            if outcome == "committed":
                text += " An abort hides its records in this partition; other partitions show theirs."
            return self._explained(HangReason.MARKER_LOST, text, facts)
        if self._leadership is not None and not self._leads():
            facts.append(self._leader_fact(self._leadership, f"{self._late.topic}-{self._late.partition}"))
            text = (
                f"The coordinator {outcome} the transaction. This replica does not lead, and may lack a marker that the leader has."
            )
            return HangExplanation(
                HangReason.INCOMPLETE_REPLICA, text, tuple(facts), "the directory of the leader of this partition"
            )
        text = f"The coordinator {outcome} the transaction, and its marker is not in this log."
        return self._explained(HangReason.MARKER_MISSING, text, facts)

    def _explained(self, reason: HangReason, text: str, facts: Sequence[TransactionEvidence]) -> HangExplanation:
        return HangExplanation(reason, text, tuple(facts), self._missing(), self._leads())

    def _ended_without_listing(self, facts: list[TransactionEvidence]) -> HangExplanation:
        """The transaction is over, and no record that is left has this partition in it."""
        newest = self._history.newest
        if newest.state is not None:
            what = f"the newest record of {self._history.transactional_id}: {newest.state.status.name}, epoch {newest.state.producer_epoch}"
            facts.append(self._fact(newest, what))
        if self._has_all_records():
            text = "The coordinator never had this partition in a transaction of this producer and epoch."
            return self._explained(HangReason.LATE_APPEND, text, facts)
        facts += [self._election_fact(election) for election in self._unclean_elections(self._late.last_ms or 0)]
        text = (
            "The transaction is over, and its marker is not in this log. The records that show whether this partition was in it were "
            "compacted away."
        )
        return self._explained(HangReason.MARKER_MISSING, text, facts)

    def _listing(self) -> tuple[StateRecord, TransactionState] | None:
        """The record with this partition that the transaction had: the newest that began before the last batch, else the oldest."""
        late = self._late
        listings = [
            (record, state)
            for record, state in self._history.states()
            if state.has_partition(late.topic, late.partition) and self._is_of_this_epoch(state)
        ]
        before = [listing for listing in listings if late.last_ms is not None and listing[1].started_ms <= late.last_ms]
        if before:
            return before[-1]
        return listings[0] if listings else None

    def _is_of_this_epoch(self, state: TransactionState) -> bool:
        """A prepared record may have the next epoch: with transaction version 2, and after a timeout."""
        if state.producer_ids[:1] != (self._late.producer_id,):
            return False
        steps = state.producer_epoch - self._late.epoch
        return steps == 0 if state.status is TransactionStatus.ONGOING else 0 <= steps <= 1

    def _decision(self, listing: StateRecord, listed: TransactionState) -> tuple[StateRecord, TransactionState] | None:
        """The first record with the outcome of a transaction."""
        for record, state in self._history.states():
            is_decided = state.status.is_prepared or state.status.is_complete
            if is_decided and record.offset >= listing.offset and state.started_ms == listed.started_ms:
                return record, state
        return None

    def _has_all_records(self) -> bool:
        """Whether every record of this producer and epoch is there.

        The log cleaner leaves the newest record of an id, and removes those before it. So all are there from the oldest that is left on.
        The first record of an epoch is empty, or prepares the end of a transaction of the epoch before.
        """
        own = [state for _, state in self._history.states() if state.producer_ids[:1] == (self._late.producer_id,)]
        index = next((at for at, state in enumerate(own) if state.producer_epoch == self._late.epoch), None)
        if index is None:
            return False
        return own[index].status is TransactionStatus.EMPTY or (index > 0 and own[index].status.is_prepared)

    # ------------------------------------------------------------------------------------------------------- leaders

    def _leads(self) -> bool:
        """Whether this replica leads, so that an abort may be printed: another one may lack a marker that its leader has."""
        node_id = self._late.node_id
        return self._leadership is not None and node_id is not None and self._leadership.state.leader == node_id

    def _missing(self) -> str | None:
        if self._is_metadata_old:
            return (
                "a newer metadata log (--metadata DIR): this one ends before the election of the leader that wrote the last batch"
            )
        if self._leadership is None:
            return "a metadata log (--metadata DIR): it shows who leads this partition, and its elections"
        return None if self._leads() else "the directory of the leader of this partition"

    def _unclean_elections(self, since_ms: int) -> list[RecordedElection]:
        elections = () if self._leadership is None else self._leadership.elections
        return [election for election in elections if election.is_unclean and election.timestamp_ms >= since_ms]

    def _election_fact(self, election: RecordedElection) -> TransactionEvidence:
        assert self._evidence.leaderships is not None, "the election is from there"
        before = "none" if election.leader_before < 0 else str(election.leader_before)
        what = f"unclean election: leader {before} -> {election.leader}, leader epoch {election.leader_epoch}"
        return TransactionEvidence(self._evidence.leaderships.path, election.offset, election.timestamp_ms, what)

    def _fact(self, record: StateRecord, what: str) -> TransactionEvidence:
        updated_ms = record.timestamp_ms if record.state is None else record.state.updated_ms
        return TransactionEvidence(self._history.directory.path, record.offset, updated_ms, what)
