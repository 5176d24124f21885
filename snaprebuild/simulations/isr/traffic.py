"""Messages between the brokers of the simulated cluster and their controller: which are late, and the effects when one arrives.

An AlterPartition is in flight until it is let arrive. Fetch requests, metadata and answers of the controller arrive at once unless they are
held: each can be late, and overtake the others. A message in flight between a broker and a controller that fails is lost, and the broker
sends its request again to the next one, unchanged.

The ledger is an observer: which records are committed, and lost. A record is committed when the high watermark of a leader passes it, and
lost when a broker begins to lead without it.

Source: ``Partition``, ``ReplicaManager``, ``AlterPartitionManager``, ``NodeToControllerChannelManager``; 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from typing import NamedTuple, TypeVar

from formats.metadata.replication_messages import EPOCH_NOT_GIVEN, AlterPartitionResponse
from snaprebuild.findings import choose_form
from snaprebuild.simulations.isr.controller import NO_LEADER, AlterPartitionError, SimulatedController
from snaprebuild.simulations.isr.messages import MessageLog
from snaprebuild.simulations.isr.replica import (
    AlterAnswer,
    AlterProposal,
    FetchRequest,
    FetchResponse,
    LogEntry,
    SimulatedReplica,
)
from snaprebuild.simulations.isr.steps import SimulatedLoss, SimulatedLossCause

__all__ = ["Channel", "Ledger", "Traffic", "ids_text"]


class Ledger:
    """Watches the replicas.

    Attributes:
        committed: records, by offset.
        losses: so far.
        stale_joins: how often a replica joined for what an earlier process of it had fetched.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        """Nothing is committed yet.

        Args:
            report: takes what happens, in words.
        """
        self.committed: list[LogEntry] = []
        self.losses: list[SimulatedLoss] = []
        self.stale_joins = 0
        self._report = report
        # In-sync replicas that cannot be relied on: joined by a stale epoch, or last and back with a new process.
        self._stale: set[int] = set()
        self._last_members: set[int] = set()

    def lacking(self, replica: SimulatedReplica) -> range:
        """Offsets of committed records that are not on its disk."""
        both = zip(self.committed, replica.log, strict=False)
        end = next((offset for offset, (committed, own) in enumerate(both) if committed != own), None)
        return range(min(len(self.committed), len(replica.log)) if end is None else end, len(self.committed))

    def is_thin(self, in_sync: Collection[SimulatedReplica], may_lead: Collection[int]) -> bool:
        """An in-sync replica that may lead lacks committed records that another one has.

        Args:
            in_sync: replicas.
            may_lead: ids of brokers that can be elected.
        """
        lacking = {each.node_id for each in in_sync if self.lacking(each)}
        return not lacking.isdisjoint(may_lead) and len(lacking) < len(in_sync)

    def advance(self, leader: SimulatedReplica) -> None:
        """A leader looks at its high watermark: what it passes is committed."""
        for offset in leader.advance_high_watermark():
            entry = leader.log[offset]
            self._report(f"record {entry.number} is committed: {_members_text(leader)}")
            if offset < len(self.committed):
                if self.committed[offset] == entry:
                    continue
                self._lose(leader, offset)
            self.committed.append(entry)

    def begins_to_lead(self, leader: SimulatedReplica) -> None:
        """Somebody begins to lead, with what it has."""
        lacking = self.lacking(leader)
        if lacking:
            self._lose(leader, lacking[0])

    def _lose(self, leader: SimulatedReplica, offset: int) -> None:
        assert leader.leading is not None
        cause = SimulatedLossCause.OTHER
        if leader.node_id in self._stale:
            cause = SimulatedLossCause.STALE_EPOCH
        elif leader.node_id in self._last_members:
            cause = SimulatedLossCause.LAST_MEMBER
        records = tuple(entry.number for entry in self.committed[offset:])
        self.losses.append(
            SimulatedLoss(
                leader=leader.node_id,
                leader_epoch=leader.leading.leader_epoch,
                first_offset=offset,
                records=records,
                cause=cause,
                is_accepted=cause is SimulatedLossCause.LAST_MEMBER,
            )
        )
        del self.committed[offset:]
        self._report(f"LOST: {_records_text(records)}, committed, which broker {leader.node_id} does not have")

    # ------------------------------------------------------------------------------------------------------------ whom to trust

    def joined_by_stale_fetch(self, replica: SimulatedReplica, leader: SimulatedReplica) -> None:
        """A replica is in sync for what an earlier process of it had fetched, and its leader may count on that for what it commits."""
        self.stale_joins += 1
        fetch_state = leader.leading and leader.leading.followers.get(replica.node_id)
        if self.lacking(replica) or (fetch_state and fetch_state.log_end > len(replica.log)):
            self._stale.add(replica.node_id)
        self._report(f"broker {replica.node_id} is in sync for what an earlier process of it had fetched")

    def stays_as_last(self, replica: SimulatedReplica) -> None:
        """A new process registered, and its replica stays in sync, as there is no other."""
        self._last_members.add(replica.node_id)
        self._report(f"broker {replica.node_id} stays in sync, as the last one")

    def fetched(self, broker_id: int, log_end: int) -> None:
        """A process that runs now has the records up to the offset of its fetch."""
        if log_end >= len(self.committed):
            self._stale.discard(broker_id)

    def in_sync_are(self, isr: Collection[int]) -> None:
        """After a change by the controller: who is out of sync is forgotten."""
        self._stale.intersection_update(isr)
        self._last_members.intersection_update(isr)


def ids_text(ids: Iterable[int]) -> str:
    """Ids with commas between them."""
    return ", ".join(map(str, ids))


def _members_text(leader: SimulatedReplica) -> str:
    assert leader.leading is not None
    ids = sorted(leader.leading.maximal_isr)
    return f"broker {ids[0]} has it" if len(ids) == 1 else f"brokers {ids_text(ids)} have it"


def _records_text(records: tuple[int, ...]) -> str:
    return f"{choose_form(len(records), 'record', 'records')} {ids_text(records)}"


T = TypeVar("T")


class Channel(StrEnum):
    """Messages that can be late."""

    FETCHES = "fetches"
    METADATA = "metadata"


class _SentAnswer(NamedTuple):
    """An answer on its way, and the proposal that it answers."""

    proposal: AlterProposal
    answer: AlterAnswer


class Traffic:
    """The messages of a cluster.

    Attributes:
        controller: the active one.
        replicas: by broker id.
        ledger: what is committed and lost.
        report: takes what happened, in words.
        messages: takes what is sent; None for a run without them.
    """

    def __init__(
        self,
        controller: SimulatedController,
        replicas: dict[int, SimulatedReplica],
        ledger: Ledger,
        report: Callable[[str], None],
        messages: MessageLog | None = None,
    ) -> None:
        """Nothing is under way, and nothing is held."""
        self.messages = messages
        self.controller = controller
        self.replicas = replicas
        self.ledger = ledger
        self.report = report
        self._fetches: dict[int, list[FetchRequest]] = {replica: [] for replica in replicas}
        self._proposals: dict[int, list[AlterProposal]] = {replica: [] for replica in replicas}
        self._answers: dict[int, list[_SentAnswer]] = {replica: [] for replica in replicas}
        self._delayed: dict[Channel, set[int]] = {channel: set() for channel in Channel}

    def texts(self) -> tuple[str, ...]:
        """Messages that have not arrived, and who gets none."""
        fetches = [
            f"Fetch of broker {each.sender} from offset {each.offset}" for waiting in self._fetches.values() for each in waiting
        ]
        proposals = [_proposal_text(each) for waiting in self._proposals.values() for each in waiting]
        return (*fetches, *proposals, *(f"metadata for broker {each}" for each in sorted(self._delayed[Channel.METADATA])))

    def outdated(self) -> set[int]:
        """Ids of brokers with a message in flight about a process that is gone, as if it still had its records."""
        reported = {(each.sender, each.incarnation) for waiting in self._fetches.values() for each in waiting}
        reported |= {(each.added, each.added_incarnation) for waiting in self._proposals.values() for each in waiting if each.added}
        return {each for each, incarnation in reported if incarnation != self.replicas[each].incarnation}

    # ------------------------------------------------------------------------------------------------------------ what follows

    def settle(self) -> None:
        """Lets arrive whatever is under way and is not held, until nothing is."""
        while sum(self._settled(replica) for replica in self.replicas.values()):
            pass

    def _settled(self, replica: SimulatedReplica) -> bool:
        """Lets arrive what is under way from or to a broker. Returns whether anything was."""
        has_moved = False
        if replica.is_running and replica.epoch is None and replica.node_id not in self.controller.sessions:
            self._register(replica)
            has_moved = True
        if replica.node_id in self._delayed[Channel.METADATA]:
            return has_moved
        if self._answers[replica.node_id]:
            self._deliver_answer(replica, self._answers[replica.node_id].pop(0).answer)
            has_moved = True
        if replica.image is not None and replica.image is not self.controller.image:
            self.read(replica)
            has_moved = True
        return has_moved

    def is_held(self, channel: Channel, broker_id: int) -> bool:
        """Whether messages of a broker on this channel are late."""
        return broker_id in self._delayed[channel]

    def hold(self, channel: Channel, replica: SimulatedReplica) -> None:
        """Makes the messages of a channel late from now on."""
        self._delayed[channel].add(replica.node_id)

    def release(self, channel: Channel, replica: SimulatedReplica) -> None:
        """The late messages of a channel arrive, and later ones are not late."""
        self._delayed[channel].discard(replica.node_id)
        if channel is Channel.FETCHES:
            waiting = self._fetches[replica.node_id]
            self._fetches[replica.node_id] = []
            for fetch in waiting:
                self._arrive(fetch)

    # ------------------------------------------------------------------------------------------------------------ fetches

    def fetch(self, replica: SimulatedReplica) -> None:
        """A replica fetches until it has all and knows so; where its requests are held, it sends one."""
        before = None
        while (fetch := replica.fetch()) is not None and (fetch, replica.high_watermark) != before:
            if self.messages is not None:
                self.messages.fetch_request(fetch)
            if self.is_held(Channel.FETCHES, replica.node_id):
                self._fetches[replica.node_id].append(fetch)
                self.report(f"a Fetch of broker {replica.node_id} from offset {fetch.offset} is under way")
                return
            before = (fetch, replica.high_watermark)
            self._arrive(fetch)

    def _arrive(self, fetch: FetchRequest) -> None:
        """A Fetch is with the leader: its answer, what it learns of the high watermark, and whether it asks for the follower to join."""
        leader = self.replicas[fetch.to]
        follower = self.replicas[fetch.sender]
        who = f"broker {fetch.sender}"
        if not leader.is_running:
            self.report(f"broker {leader.node_id} is down: the Fetch of {who} is lost")
            return
        error, fetched = leader.answer_fetch(fetch)
        if self.messages is not None:
            self.messages.fetch_response(fetch, error, fetched, leader.log)
        if fetched is None:
            self.report(f"broker {leader.node_id} refuses the Fetch of {who}: {error}")
            return
        if fetched.truncate_to is None:
            epoch = "" if fetch.broker_epoch == EPOCH_NOT_GIVEN else f" with broker epoch {fetch.broker_epoch}"
            self.report(f"broker {leader.node_id} knows that {who}{epoch} has all below offset {fetch.offset}")
            if fetch.incarnation == follower.incarnation:
                self.ledger.fetched(follower.node_id, fetch.offset)
            self.ledger.advance(leader)
            self.send(leader, leader.propose_join(fetch.sender))
        self._take_fetched(follower, fetch, fetched)

    def _take_fetched(self, follower: SimulatedReplica, fetch: FetchRequest, fetched: FetchResponse) -> None:
        before = len(follower.log)
        follower.take_fetched(fetch, fetched)
        if len(follower.log) < before:
            self.report(f"broker {follower.node_id} cuts its log at offset {len(follower.log)}")
        elif len(follower.log) > before:
            self.report(f"broker {follower.node_id} has all below offset {len(follower.log)}")

    # ------------------------------------------------------------------------------------------------------------ AlterPartition

    def send(self, leader: SimulatedReplica, proposal: AlterProposal | None) -> None:
        """An AlterPartition is under way, if there is one."""
        if proposal is not None:
            self._proposals[leader.node_id].append(proposal)
            if self.messages is not None:
                self.messages.alter_request(proposal.request)
            self.report(f"{_proposal_text(proposal)} is under way")

    def send_shrink(self, leader: SimulatedReplica) -> None:
        """A leader asks for replicas that lag to be out of sync."""
        self.send(leader, leader.propose_leave())

    def has_proposal(self, broker_id: int) -> bool:
        """One of it is under way."""
        return bool(self._proposals[broker_id])

    def deliver_alter(self, leader: SimulatedReplica) -> None:
        """The oldest AlterPartition of a broker arrives at the controller."""
        broker_id = leader.node_id
        proposal = self._proposals[broker_id].pop(0)
        answered, validation = self.controller.alter(proposal.request)
        if self.messages is not None:
            if answered is None:
                self.messages.alter_response(broker_id, AlterPartitionResponse(0, validation.error, ()))
            else:
                self.messages.alter_response(broker_id, AlterPartitionResponse(0, AlterPartitionError.NONE, (answered,)))
        proposed = proposal.request.partitions[0]
        error = validation.error if answered is None else AlterPartitionError(answered.error_code)
        isr, partition_epoch = ((), -1) if answered is None else (answered.isr, answered.partition_epoch)
        answer = AlterAnswer(proposal.incarnation, proposed.leader_epoch, proposed.partition_epoch, error, isr, partition_epoch)
        self._answers[broker_id].append(_SentAnswer(proposal, answer))
        if error is not AlterPartitionError.NONE:
            self.report(f"the controller refuses it with {error.name}: {validation.reason}")
            return
        self.report(f"the controller takes it: in sync are {ids_text(isr)}")
        self.ledger.in_sync_are(self.controller.image.partition.isr)
        if proposal.added is not None and not self.controller.is_registered(proposal.added, proposal.added_incarnation):
            self.ledger.joined_by_stale_fetch(self.replicas[proposal.added], self.replicas[broker_id])

    def _deliver_answer(self, replica: SimulatedReplica, answer: AlterAnswer) -> None:
        before = replica.leading and replica.leading.isr
        replica.take_answer(answer)
        leading = replica.leading
        if leading is not None and leading.isr != before:
            self.report(f"broker {replica.node_id} knows that in sync are {ids_text(leading.isr)}")
        self.ledger.advance(replica)

    def fail_over(self) -> None:
        """Another controller takes over; what was under way between the brokers and the one before is lost, and sent again."""
        for broker_id, replica in self.replicas.items():
            lost = [answer.proposal for answer in self._answers[broker_id]] + self._proposals[broker_id]
            self._answers[broker_id].clear()
            self._proposals[broker_id] = [each for each in lost if replica.is_running and each.incarnation == replica.incarnation]
            for proposal in self._proposals[broker_id]:
                self.report(f"{_proposal_text(proposal)} is sent again")
                if self.messages is not None:
                    self.messages.alter_request(proposal.request)
        self.controller.fail_over({each.node_id for each in self.replicas.values() if each.epoch is not None})

    # ------------------------------------------------------------------------------------------------------------ metadata

    def read(self, replica: SimulatedReplica) -> None:
        """A broker reads the metadata up to their end."""
        before = replica.leading and replica.leading.isr
        if replica.take_metadata(self.controller.image):
            assert replica.leading is not None
            epoch = replica.leading.leader_epoch
            self.report(f"broker {replica.node_id} begins to lead in leader epoch {epoch}, with log end offset {len(replica.log)}")
            self.ledger.begins_to_lead(replica)
        elif before is not None and replica.leading is None:
            self.report(f"broker {replica.node_id} knows that it does not lead any more")
        elif replica.leading is not None and replica.leading.isr != before:
            self.report(f"broker {replica.node_id} knows that in sync are {ids_text(replica.leading.isr)}")
        self.ledger.advance(replica)

    def _register(self, replica: SimulatedReplica) -> None:
        was_in_sync = replica.node_id in self.controller.image.partition.isr
        replica.epoch = self.with_controller(lambda: self.controller.register(replica.node_id, replica.incarnation))
        assert replica.epoch is not None
        self.report(f"broker {replica.node_id} is registered with broker epoch {replica.epoch}, and fenced")
        if was_in_sync and replica.node_id in self.controller.image.partition.isr:
            self.ledger.stays_as_last(replica)
        self.read(replica)

    def with_controller(self, act: Callable[[], T]) -> T:
        """Something that the controller does, and what it changes at the partition."""
        before = self.controller.image.partition
        result = act()
        after = self.controller.image.partition
        if after is not before:
            leader = "no broker leads" if after.leader == NO_LEADER else f"broker {after.leader} leads"
            self.report(f"in sync are {ids_text(after.isr)}, {leader} in leader epoch {after.leader_epoch}")
            self.ledger.in_sync_are(after.isr)
        return result


def _proposal_text(proposal: AlterProposal) -> str:
    members = (
        str(each.broker_id) if each.broker_epoch == EPOCH_NOT_GIVEN else f"{each.broker_id} with epoch {each.broker_epoch}"
        for each in proposal.request.partitions[0].isr
    )
    return f"AlterPartition of broker {proposal.request.broker_id} (in sync: {', '.join(members)})"
