"""A broker of the simulated cluster: a process that comes and goes, a disk, and what it does as leader or follower of the partition.

Source: ``Partition`` (``appendRecordsToLeader``, ``updateFollowerFetchState``, ``maybeExpandIsr``, ``maybeIncrementLeaderHW``,
``handleAlterPartitionError``),
``Replica.updateFetchStateOrThrow``; 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from formats.metadata.replication_messages import EPOCH_NOT_GIVEN, AlterPartitionRequest, IsrMember, ProposedPartition
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.controller import PARTITION, TOPIC_ID, AlterPartitionError, SimulatedImage

__all__ = ["AlterAnswer", "AlterProposal", "FetchRequest", "FetchResponse", "LeaderState", "LogEntry", "SimulatedReplica"]

REVERTING = AlterPartitionError.INELIGIBLE_REPLICA
"""After this error the leader knows that nothing was changed. After the others that can come here it waits for metadata; those after
which a broker asks again come from a controller that is not the active one."""


class LogEntry(NamedTuple):
    """A record in the log; its offset is its place.

    Attributes:
        leader_epoch: of the leader that took it.
        number: which record it is.
    """

    leader_epoch: int
    number: int


class FetchRequest(NamedTuple):
    """A request of a follower.

    Attributes:
        sender: broker id.
        incarnation: of the process; not in the request, it names the connection.
        broker_epoch: of the follower, -1 where its protocol has none.
        to: broker id of the leader.
        leader_epoch: as the follower knows it.
        offset: log end offset of the follower.
        last_epoch: leader epoch of its last record, -1 where it has none.
    """

    sender: int
    incarnation: int
    broker_epoch: int
    to: int
    leader_epoch: int
    offset: int
    last_epoch: int


class FetchResponse(NamedTuple):
    """The answer of a leader.

    Attributes:
        truncate_to: where the logs part, or None.
        entries: from the offset on.
        high_watermark: of the leader.
    """

    truncate_to: int | None
    entries: tuple[LogEntry, ...]
    high_watermark: int


class AlterProposal(NamedTuple):
    """An AlterPartition request in flight.

    Attributes:
        incarnation: of the leader's process.
        request: as it is sent.
        added: broker id that should join, or None.
        added_incarnation: of the process whose fetches are the reason; the request does not contain it.
    """

    incarnation: int
    request: AlterPartitionRequest
    added: int | None
    added_incarnation: int


class AlterAnswer(NamedTuple):
    """The controller's answer on its way.

    Attributes:
        incarnation: of the process that asked.
        leader_epoch: for which it asked.
        partition_epoch: for which it asked.
        error: or NONE.
        isr: from now on.
        new_partition_epoch: from now on.
    """

    incarnation: int
    leader_epoch: int
    partition_epoch: int
    error: AlterPartitionError
    isr: tuple[int, ...]
    new_partition_epoch: int


@dataclass(slots=True)
class FetchState:
    """The state of a follower that its leader keeps since the last fetch."""

    incarnation: int
    broker_epoch: int
    log_end: int


@dataclass(slots=True)
class LeaderState:
    """The state of a leader.

    Attributes:
        leader_epoch: in which it leads.
        partition_epoch: newest that it knows.
        isr: committed in-sync replicas.
        epoch_start: log end offset when it began to lead.
        followers: by broker id, those that have fetched in this epoch.
        pending: in-sync replicas that it has asked for, or None.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    epoch_start: int
    followers: dict[int, FetchState] = field(default_factory=dict)
    pending: tuple[int, ...] | None = None

    @property
    def maximal_isr(self) -> set[int]:
        """The in-sync replicas and those that may be in sync already, as far as the leader knows."""
        return set(self.isr) | set(self.pending or ())


class SimulatedReplica:
    """A broker.

    Attributes:
        node_id: broker id.
        is_running: there is a process.
        incarnation: of the process; rises with each start.
        epoch: broker epoch; None until it has registered.
        log: what is on its disk.
        high_watermark: as it knows it.
        image: metadata up to where it has read them; None before it has registered.
        leading: None if it does not lead, as far as it knows.
        sends_epoch: its Fetch has a broker epoch (version 15).
    """

    def __init__(self, node_id: int, mode: Mode, epoch: int, image: SimulatedImage, min_insync_replicas: int) -> None:
        self.node_id = node_id
        self._mode = mode
        self._min_insync_replicas = min_insync_replicas
        self.is_running = True
        self.incarnation = 1
        self.epoch: int | None = epoch
        self.log: list[LogEntry] = []
        self.high_watermark = 0
        self.image: SimulatedImage | None = None
        self.leading: LeaderState | None = None
        self.sends_epoch = mode is Mode.KIP_903
        self.take_metadata(image)

    # ------------------------------------------------------------------------------------------------------------ process

    def stop(self) -> None:
        """The process ends; the disk stays."""
        self.is_running = False
        self.epoch = None
        self.image = None
        self.leading = None

    def start(self) -> None:
        """A new process, which has to register."""
        self.is_running = True
        self.incarnation = self.incarnation + 1
        self.high_watermark = min(self.high_watermark, len(self.log))

    def take_metadata(self, image: SimulatedImage) -> bool:
        """Reads the metadata up to their end. Returns whether it leads from now on, in an epoch of its own."""
        self.image = image
        partition = image.partition
        leading = self.leading
        if partition.leader != self.node_id:
            self.leading = None
            return False
        if leading is None or partition.leader_epoch > leading.leader_epoch:
            self.leading = LeaderState(partition.leader_epoch, partition.partition_epoch, partition.isr, len(self.log))
            return True
        if partition.partition_epoch > leading.partition_epoch:
            leading.isr = partition.isr
            leading.partition_epoch = partition.partition_epoch
            leading.pending = None
        return False

    # ------------------------------------------------------------------------------------------------------------ follower

    def fetch(self) -> FetchRequest | None:
        """The next request; None if it knows of no leader but itself."""
        if self.image is None or self.epoch is None or self.leading is not None:
            return None
        partition = self.image.partition
        if partition.leader in (self.node_id, -1):
            return None
        epoch = self.epoch if self.sends_epoch else EPOCH_NOT_GIVEN
        last_epoch = self.log[-1].leader_epoch if self.log else -1
        return FetchRequest(
            sender=self.node_id,
            incarnation=self.incarnation,
            broker_epoch=epoch,
            to=partition.leader,
            leader_epoch=partition.leader_epoch,
            offset=len(self.log),
            last_epoch=last_epoch,
        )

    def take_fetched(self, fetch: FetchRequest, fetched: FetchResponse) -> None:
        """Takes an answer, unless it has changed its log, its leader or its process since it asked."""
        if fetch != self.fetch():
            return
        if fetched.truncate_to is not None:
            del self.log[fetched.truncate_to :]
            self.high_watermark = min(self.high_watermark, len(self.log))
            return
        self.log += fetched.entries
        self.high_watermark = min(fetched.high_watermark, len(self.log))

    # ------------------------------------------------------------------------------------------------------------ leader

    def append(self, number: int) -> None:
        """A producer writes a record."""
        assert self.leading is not None
        self.log.append(LogEntry(self.leading.leader_epoch, number))

    def answer_fetch(self, fetch: FetchRequest) -> tuple[str | None, FetchResponse | None]:
        """Answers a follower. Returns the name of an error, or what it is sent."""
        leading = self.leading
        if leading is None or self.image is None:
            return "NOT_LEADER_OR_FOLLOWER", None
        if fetch.leader_epoch != leading.leader_epoch:
            return ("FENCED" if fetch.leader_epoch < leading.leader_epoch else "UNKNOWN") + "_LEADER_EPOCH", None
        if self._mode is Mode.KIP_903 and self._is_past(fetch):
            return "NOT_LEADER_OR_FOLLOWER", None
        parting = self._parting(fetch)
        if parting is not None:
            return None, FetchResponse(parting, (), self.high_watermark)
        leading.followers[fetch.sender] = FetchState(fetch.incarnation, fetch.broker_epoch, fetch.offset)
        return None, FetchResponse(None, tuple(self.log[fetch.offset :]), self.high_watermark)

    def _is_past(self, fetch: FetchRequest) -> bool:
        """The metadata know a newer process of the follower: a check of 4.x that the KIP does not have."""
        assert self.image is not None
        return EPOCH_NOT_GIVEN < fetch.broker_epoch < self.image.brokers[fetch.sender].epoch

    def _parting(self, fetch: FetchRequest) -> int | None:
        """Where the follower has to cut its log, if it has to (KIP-595, diverging epoch)."""
        if fetch.offset == 0:
            return None
        end = sum(entry.leader_epoch <= fetch.last_epoch for entry in self.log)
        epoch = self.log[end - 1].leader_epoch if end else -1
        if epoch == fetch.last_epoch and end >= fetch.offset:
            return None
        # The follower looks for the end of that epoch in its own log; at the latest there the logs part.
        return min(end, fetch.offset - 1)

    @property
    def is_under_min_isr(self) -> bool:
        """The replica leads, and too few are in sync to take a record with ``acks=all``; those that may be in sync already do not count."""
        return self.leading is not None and len(self.leading.isr) < self._min_insync_replicas

    def advance_high_watermark(self) -> range:
        """Raises it to what all in-sync replicas have, those that may be included, if enough are. Returns the offsets that it passes."""
        leading = self.leading
        before = self.high_watermark
        if leading is None or self.is_under_min_isr:
            return range(0)
        ends = [len(self.log)]
        for each in leading.maximal_isr - {self.node_id}:
            follower = leading.followers.get(each)
            ends.append(-1 if follower is None else follower.log_end)
        self.high_watermark = max(before, min(ends))
        return range(before, self.high_watermark)

    def propose_join(self, broker_id: int) -> AlterProposal | None:
        """After a fetch: asks for the follower to be in sync, if it may be (``maybeExpandIsr``)."""
        leading = self.leading
        if leading is None or leading.pending is not None or broker_id in leading.isr or not self._may_join(broker_id):
            return None
        return self._propose((*leading.isr, broker_id), broker_id)

    def _may_join(self, broker_id: int) -> bool:
        assert self.leading is not None
        assert self.image is not None
        follower = self.leading.followers.get(broker_id)
        registration = self.image.brokers.get(broker_id)
        if follower is None or registration is None or not registration.is_active:
            return False
        if self._mode is Mode.KIP_903 and follower.broker_epoch not in (EPOCH_NOT_GIVEN, registration.epoch):
            return False
        return follower.log_end >= max(self.high_watermark, self.leading.epoch_start)

    @property
    def is_waiting(self) -> bool:
        """The replica leads, and waits for the answer to an AlterPartition."""
        return self.leading is not None and self.leading.pending is not None

    def lagging(self) -> set[int]:
        """In-sync followers of this leader that do not have all of its log."""
        leading = self.leading
        followers = {} if leading is None else leading.followers
        has_all = {self.node_id, *(each for each, state in followers.items() if state.log_end >= len(self.log))}
        return set(() if leading is None else leading.isr) - has_all

    def propose_leave(self) -> AlterProposal | None:
        """Some time after they stopped fetching: asks for followers that lag to be out of sync (``maybeShrinkIsr``)."""
        leading = self.leading
        lagging = self.lagging()
        if leading is None or leading.pending is not None or not lagging:
            return None
        return self._propose(tuple(each for each in leading.isr if each not in lagging), None)

    def _propose(self, isr: tuple[int, ...], added: int | None) -> AlterProposal:
        assert self.leading is not None
        assert self.epoch is not None
        leading = self.leading
        leading.pending = isr
        members = tuple(IsrMember(each, self._epoch_of(each)) for each in isr)
        partition = ProposedPartition(TOPIC_ID, PARTITION, leading.leader_epoch, members, 0, leading.partition_epoch)
        incarnation = 0 if added is None else leading.followers[added].incarnation
        return AlterProposal(self.incarnation, AlterPartitionRequest(self.node_id, self.epoch, (partition,)), added, incarnation)

    def _epoch_of(self, broker_id: int) -> int:
        assert self.leading is not None
        assert self.image is not None
        assert self.epoch is not None
        if self._mode in (Mode.NO_EPOCHS, Mode.BUMP_LEADER_EPOCHS):
            return EPOCH_NOT_GIVEN
        if broker_id == self.node_id:
            return self.epoch
        if self._mode is Mode.EPOCHS_FROM_METADATA:
            return self.image.brokers[broker_id].epoch
        follower = self.leading.followers.get(broker_id)
        return EPOCH_NOT_GIVEN if follower is None else follower.broker_epoch

    def take_answer(self, answer: AlterAnswer) -> None:
        """Takes the controller's answer, if it is to what it waits for."""
        leading = self.leading
        answered = (answer.incarnation, answer.leader_epoch, answer.partition_epoch)
        if leading is None or answered != (self.incarnation, leading.leader_epoch, leading.partition_epoch):
            return
        if answer.error is AlterPartitionError.NONE:
            leading.isr = answer.isr
            leading.partition_epoch = answer.new_partition_epoch
            leading.pending = None
        elif answer.error is REVERTING:
            leading.pending = None
