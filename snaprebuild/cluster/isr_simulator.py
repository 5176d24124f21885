"""A cluster of three brokers and one partition, step by step: who is in sync, what is committed, and what is lost (KIP-903).

A step is one thing that happens to one broker. An AlterPartition arrives when a step says so; Fetch requests, metadata and answers of the
controller arrive at once unless they are held: so each can be late, and overtake the others. A record is committed when the high watermark
of a leader passes it: from then on a producer with ``acks=all`` takes it for written. It is lost when somebody begins to lead without it.
``min.insync.replicas`` is 1; there are no unclean elections and no eligible leader replicas.

Source: KIP-903; the classes named in ``isr_controller`` and ``isr_replica``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import partial
from typing import TypeVar

from formats.replication_messages import EPOCH_NOT_GIVEN
from snaprebuild.cluster.alter_partition import NO_LEADER, AlterPartitionError, BrokerState
from snaprebuild.cluster.isr_controller import Controller
from snaprebuild.cluster.isr_mode import Mode
from snaprebuild.cluster.isr_replica import Answer, Entry, Fetch, Fetched, Proposal, Replica
from snaprebuild.cluster.isr_steps import BROKERS, Cause, Loss, ReplicaView, Step, Verb, View

__all__ = ["Cluster"]

T = TypeVar("T")


class Channel(StrEnum):
    """Messages that can be late."""

    FETCHES = "fetches"
    METADATA = "metadata"


class Cluster:
    """Three brokers that are registered, unfenced and in sync, with an empty log; 1 leads.

    Attributes:
        mode: of epochs.
        told: what happened in the last step, in words; empty unless it is asked for.
        losses: so far.
        stale_joins: how often a replica joined for what an earlier process of it had fetched.
    """

    def __init__(self, mode: Mode, *, tells: bool = False) -> None:
        self.mode = mode
        self.told: list[str] = []
        self.losses: list[Loss] = []
        self.stale_joins = 0
        self._tells = tells
        self._controller = Controller(mode, BROKERS)
        image = self._controller.image
        self._replicas = {each: Replica(each, mode, image.brokers[each].epoch, image) for each in BROKERS}
        self._committed: list[Entry] = []
        self._produced = 0
        self._fetches: dict[int, list[Fetch]] = {each: [] for each in BROKERS}
        self._proposals: dict[int, list[Proposal]] = {each: [] for each in BROKERS}
        self._answers: dict[int, list[Answer]] = {each: [] for each in BROKERS}
        self._held: dict[Channel, set[int]] = {channel: set() for channel in Channel}
        # In-sync replicas of whom nobody may rely on: joined by a stale epoch, or last and back with a new process.
        self._stale: set[int] = set()
        self._kept: set[int] = set()
        self._whether: dict[Verb, Callable[[Replica], str | None]] = {}
        self._does: dict[Verb, Callable[[Replica], None]] = {}
        for verb in Verb:
            what, _, channel = verb.partition("-")
            if channel in {str(each) for each in Channel}:
                self._whether[verb] = partial(getattr(self, f"_why_not_{what}"), Channel(channel))
                self._does[verb] = partial(getattr(self, f"_{what}"), Channel(channel))
            else:
                self._whether[verb] = getattr(self, f"_why_not_{verb.name.lower()}")
                self._does[verb] = getattr(self, f"_{verb.name.lower()}")

    def why_not(self, step: Step) -> str | None:
        """Why a step cannot happen now; None where it can."""
        return self._whether[step.verb](self._replicas[step.broker])

    def do(self, step: Step) -> None:
        """Lets a step happen that can, and then whatever follows from it without being held."""
        self.told.clear()
        self._does[step.verb](self._replicas[step.broker])
        while sum(self._settled(replica) for replica in self._replicas.values()):
            pass

    def view(self) -> View:
        """The cluster as it stands."""
        image = self._controller.image
        replicas = tuple(
            ReplicaView(
                broker=each.id,
                is_running=each.is_running,
                epoch=image.brokers[each.id].epoch,
                fenced=image.brokers[each.id].fenced,
                in_controlled_shutdown=image.brokers[each.id].in_controlled_shutdown,
                log_end=len(each.log),
                high_watermark=each.high_watermark,
                leads=each.leading is not None,
            )
            for each in self._replicas.values()
        )
        held = [
            f"Fetch of broker {each.sender} from offset {each.offset}" for waiting in self._fetches.values() for each in waiting
        ]
        held += [_proposal_text(each) for waiting in self._proposals.values() for each in waiting]
        held += [f"metadata for broker {each}" for each in sorted(self._held[Channel.METADATA])]
        return View(image.partition, replicas, len(self._committed), tuple(held))

    def _tell(self, text: str) -> None:
        if self._tells:
            self.told.append(text)

    # ------------------------------------------------------------------------------------------------------------ what follows

    def _settled(self, replica: Replica) -> bool:
        """Lets arrive what is under way from or to a broker, and is not held. Returns whether anything was."""
        has_moved = False
        if replica.is_running and replica.epoch is None and replica.id not in self._controller.sessions:
            self._register(replica)
            has_moved = True
        if replica.id in self._held[Channel.METADATA]:
            return has_moved
        if self._answers[replica.id]:
            self._deliver_answer(replica, self._answers[replica.id].pop(0))
            has_moved = True
        if replica.image is not None and replica.image is not self._controller.image:
            self._read(replica)
            has_moved = True
        return has_moved

    def _why_not_hold(self, channel: Channel, replica: Replica) -> str | None:
        return "they are held" if replica.id in self._held[channel] else None

    def _why_not_release(self, channel: Channel, replica: Replica) -> str | None:
        return None if replica.id in self._held[channel] else "they are not held"

    def _hold(self, channel: Channel, replica: Replica) -> None:
        self._held[channel].add(replica.id)

    def _release(self, channel: Channel, replica: Replica) -> None:
        self._held[channel].discard(replica.id)
        if channel is Channel.FETCHES:
            waiting, self._fetches[replica.id] = self._fetches[replica.id], []
            for fetch in waiting:
                self._arrive(fetch)

    # ------------------------------------------------------------------------------------------------------------ the log

    def _why_not_produce(self, replica: Replica) -> str | None:
        return None if replica.leading is not None else "it does not lead"

    def _produce(self, replica: Replica) -> None:
        self._produced += 1
        replica.append(self._produced)
        self._tell(f"record {self._produced} is at offset {len(replica.log) - 1} of broker {replica.id}")
        self._advance(replica)

    def _why_not_fetch(self, replica: Replica) -> str | None:
        fetch = replica.fetch()
        if fetch is None:
            return "it has no leader to fetch from"
        return None if self._replicas[fetch.to].is_running else f"broker {fetch.to}, from which it would fetch, is down"

    def _fetch(self, replica: Replica) -> None:
        before = None
        while (fetch := replica.fetch()) is not None and (fetch, replica.high_watermark) != before:
            if replica.id in self._held[Channel.FETCHES]:
                self._fetches[replica.id].append(fetch)
                self._tell(f"a Fetch of broker {replica.id} from offset {fetch.offset} is under way")
                return
            before = (fetch, replica.high_watermark)
            self._arrive(fetch)

    def _arrive(self, fetch: Fetch) -> None:
        """A Fetch is with the leader: its answer, what it learns of the high watermark, and whether it asks for the follower to join."""
        leader, follower = self._replicas[fetch.to], self._replicas[fetch.sender]
        who = f"broker {fetch.sender}"
        if not leader.is_running:
            self._tell(f"broker {leader.id} is down: the Fetch of {who} is lost")
            return
        error, fetched = leader.answer_fetch(fetch)
        if fetched is None:
            self._tell(f"broker {leader.id} refuses the Fetch of {who}: {error}")
            return
        if fetched.truncate_to is None:
            epoch = "" if fetch.broker_epoch == EPOCH_NOT_GIVEN else f" with broker epoch {fetch.broker_epoch}"
            self._tell(f"broker {leader.id} knows that {who}{epoch} has all below offset {fetch.offset}")
            if fetch.offset >= len(self._committed) and fetch.incarnation == follower.incarnation:
                self._stale.discard(fetch.sender)
            self._advance(leader)
            self._send_proposal(leader, leader.propose_join(fetch.sender))
        self._take_fetched(follower, fetch, fetched)

    def _take_fetched(self, follower: Replica, fetch: Fetch, fetched: Fetched) -> None:
        before = len(follower.log)
        follower.take_fetched(fetch, fetched)
        if len(follower.log) < before:
            self._tell(f"broker {follower.id} cuts its log at offset {len(follower.log)}")
        elif len(follower.log) > before:
            self._tell(f"broker {follower.id} has all below offset {len(follower.log)}")

    def _advance(self, leader: Replica) -> None:
        for offset in leader.advance_high_watermark():
            entry = leader.log[offset]
            self._tell(f"record {entry.number} is committed: {_members_text(leader)}")
            if offset < len(self._committed):
                if self._committed[offset] == entry:
                    continue
                self._lose(leader, offset)
            self._committed.append(entry)

    # ------------------------------------------------------------------------------------------------------------ in-sync replicas

    def _why_not_shrink(self, replica: Replica) -> str | None:
        leading = replica.leading
        if leading is None:
            return "it does not lead"
        if leading.pending is not None:
            return "it waits for the answer to an AlterPartition"
        behind = (each for each in leading.isr if each != replica.id)
        known = {each: state.log_end for each, state in leading.followers.items()}
        return None if any(known.get(each, -1) < len(replica.log) for each in behind) else "nobody lags behind"

    def _shrink(self, replica: Replica) -> None:
        self._send_proposal(replica, replica.propose_leave())

    def _send_proposal(self, leader: Replica, proposal: Proposal | None) -> None:
        if proposal is not None:
            self._proposals[leader.id].append(proposal)
            self._tell(f"{_proposal_text(proposal)} is under way")

    def _why_not_deliver_alter(self, replica: Replica) -> str | None:
        return None if self._proposals[replica.id] else "no AlterPartition of it is under way"

    def _deliver_alter(self, replica: Replica) -> None:
        proposal = self._proposals[replica.id].pop(0)
        answered, judgement = self._controller.alter(proposal.request)
        asked = proposal.request.partitions[0]
        error = judgement.error if answered is None else AlterPartitionError(answered.error_code)
        isr, partition_epoch = ((), -1) if answered is None else (answered.isr, answered.partition_epoch)
        answer = Answer(proposal.incarnation, asked.leader_epoch, asked.partition_epoch, error, isr, partition_epoch)
        self._answers[proposal.request.broker_id].append(answer)
        if error is not AlterPartitionError.NONE:
            self._tell(f"the controller refuses it with {error.name}: {judgement.why}")
            return
        self._tell(f"the controller takes it: in sync are {_ids_text(isr)}")
        self._changed()
        added = proposal.added
        if added is not None and self._controller.incarnations[added] != proposal.added_incarnation:
            self.stale_joins += 1
            if self._lacking(self._replicas[added]):
                self._stale.add(added)
            self._tell(f"broker {added} is in sync for what an earlier process of it had fetched")

    def _deliver_answer(self, replica: Replica, answer: Answer) -> None:
        before = replica.leading and replica.leading.isr
        replica.take_answer(answer)
        leading = replica.leading
        if leading is not None and leading.isr != before:
            self._tell(f"broker {replica.id} knows that in sync are {_ids_text(leading.isr)}")
        self._advance(replica)

    def _changed(self) -> None:
        """After a change by the controller: who is out of sync is forgotten."""
        isr = self._controller.image.partition.isr
        self._stale.intersection_update(isr)
        self._kept.intersection_update(isr)

    # ------------------------------------------------------------------------------------------------------------ metadata

    def _read(self, replica: Replica) -> None:
        before = replica.leading and replica.leading.isr
        if replica.take_metadata(self._controller.image):
            self._begin_to_lead(replica)
        elif before is not None and replica.leading is None:
            self._tell(f"broker {replica.id} knows that it does not lead any more")
        elif replica.leading is not None and replica.leading.isr != before:
            self._tell(f"broker {replica.id} knows that in sync are {_ids_text(replica.leading.isr)}")
        self._advance(replica)

    def _begin_to_lead(self, replica: Replica) -> None:
        assert replica.leading is not None
        epoch = replica.leading.leader_epoch
        self._tell(f"broker {replica.id} begins to lead in leader epoch {epoch}, with log end offset {len(replica.log)}")
        lacking = self._lacking(replica)
        if lacking:
            self._lose(replica, lacking[0])

    def _lacking(self, replica: Replica) -> range:
        """Offsets of committed records that are not on its disk."""
        both = zip(self._committed, replica.log, strict=False)
        end = next((offset for offset, (committed, own) in enumerate(both) if committed != own), None)
        return range(min(len(self._committed), len(replica.log)) if end is None else end, len(self._committed))

    @property
    def is_thin(self) -> bool:
        """An in-sync replica lacks committed records that another one has."""
        lacking = [bool(self._lacking(self._replicas[each])) for each in self._controller.image.partition.isr]
        return any(lacking) and not all(lacking)

    def _lose(self, leader: Replica, offset: int) -> None:
        assert leader.leading is not None
        cause = Cause.STALE_EPOCH if leader.id in self._stale else Cause.LAST_MEMBER if leader.id in self._kept else Cause.OTHER
        records = tuple(entry.number for entry in self._committed[offset:])
        self.losses.append(Loss(leader.id, leader.leading.leader_epoch, offset, records, cause))
        del self._committed[offset:]
        self._tell(f"LOST: {_records_text(records)}, committed, which broker {leader.id} does not have")

    # ------------------------------------------------------------------------------------------------------------ processes

    def _why_not_crash(self, replica: Replica) -> str | None:
        return None if replica.is_running else "it is down"

    def _crash(self, replica: Replica) -> None:
        replica.stop()
        self._tell(f"broker {replica.id} is down, with log end offset {len(replica.log)} on its disk")

    def _why_not_shut_down(self, replica: Replica) -> str | None:
        if replica.epoch is None or self._state(replica).fenced:
            return "it is down, not registered, or fenced"
        return "it does so already" if self._state(replica).in_controlled_shutdown else None

    def _shut_down(self, replica: Replica) -> None:
        self._with_controller(lambda: self._controller.shut_down(replica.id))

    def _why_not_stop(self, replica: Replica) -> str | None:
        if replica.epoch is None or not self._state(replica).in_controlled_shutdown:
            return "it has not asked to shut down"
        return None

    def _stop(self, replica: Replica) -> None:
        replica.stop()
        self._with_controller(lambda: self._controller.fence(replica.id))

    def _why_not_lose_tail(self, replica: Replica) -> str | None:
        if replica.is_running:
            return "it is running"
        return None if replica.log else "its disk is empty"

    def _lose_tail(self, replica: Replica) -> None:
        replica.log.pop()
        self._tell(f"the log of broker {replica.id} ends at offset {len(replica.log)}")

    def _why_not_replace_disk(self, replica: Replica) -> str | None:
        return self._why_not_lose_tail(replica)

    def _replace_disk(self, replica: Replica) -> None:
        replica.log.clear()
        replica.high_watermark = 0
        self._tell(f"broker {replica.id} has an empty disk")

    def _why_not_start(self, replica: Replica) -> str | None:
        return "it is running" if replica.is_running else None

    def _start(self, replica: Replica) -> None:
        replica.start()
        self._held[Channel.METADATA].discard(replica.id)
        if replica.id in self._controller.sessions:
            self._tell("the controller refuses to register it: DUPLICATE_BROKER_REGISTRATION, the process before it has a session")

    def _register(self, replica: Replica) -> None:
        was_in_sync = replica.id in self._controller.image.partition.isr
        replica.epoch = self._with_controller(lambda: self._controller.register(replica.id, replica.incarnation))
        assert replica.epoch is not None
        self._tell(f"broker {replica.id} is registered with broker epoch {replica.epoch}, and fenced")
        if was_in_sync and replica.id in self._controller.image.partition.isr:
            self._kept.add(replica.id)
            self._tell(f"broker {replica.id} stays in sync, as the last one")
        self._read(replica)

    def _why_not_expire(self, replica: Replica) -> str | None:
        return None if replica.id in self._controller.sessions else "it has no session"

    def _expire(self, replica: Replica) -> None:
        self._controller.expire(replica.id)
        self._tell(f"the session of broker {replica.id} has ended")

    def _why_not_fence(self, replica: Replica) -> str | None:
        if replica.is_running and replica.id in self._controller.sessions:
            return "it is running and has a session"
        return "it is fenced" if self._state(replica).fenced else None

    def _fence(self, replica: Replica) -> None:
        self._with_controller(lambda: self._controller.fence(replica.id))
        self._tell(f"broker {replica.id} is fenced")

    def _why_not_unfence(self, replica: Replica) -> str | None:
        if replica.epoch is None:
            return "it is down or not registered"
        if self._state(replica).in_controlled_shutdown:
            return "it is about to go"
        return None if self._state(replica).fenced else "it is not fenced"

    def _unfence(self, replica: Replica) -> None:
        self._read(replica)
        self._with_controller(lambda: self._controller.unfence(replica.id))
        self._tell(f"broker {replica.id} is unfenced")

    def _why_not_old_fetch(self, replica: Replica) -> str | None:
        return None if replica.tells_epoch else "it does not tell its epoch"

    def _old_fetch(self, replica: Replica) -> None:
        replica.tells_epoch = False
        self._tell(f"broker {replica.id} fetches without its broker epoch")

    def _state(self, replica: Replica) -> BrokerState:
        return self._controller.image.brokers[replica.id]

    def _with_controller(self, act: Callable[[], T]) -> T:
        """Something that the controller does, and what it changes at the partition."""
        before = self._controller.image.partition
        result = act()
        after = self._controller.image.partition
        if after is not before:
            leader = "nobody leads" if after.leader == NO_LEADER else f"broker {after.leader} leads"
            self._tell(f"in sync are {_ids_text(after.isr)}, {leader} in leader epoch {after.leader_epoch}")
            self._changed()
        return result


def _ids_text(ids: Iterable[int]) -> str:
    return ", ".join(map(str, ids))


def _members_text(leader: Replica) -> str:
    assert leader.leading is not None
    ids = sorted(leader.leading.maximal_isr)
    return f"broker {ids[0]} has it" if len(ids) == 1 else f"brokers {_ids_text(ids)} have it"


def _records_text(records: tuple[int, ...]) -> str:
    return f"record{'s' * (len(records) > 1)} {_ids_text(records)}"


def _proposal_text(proposal: Proposal) -> str:
    members = (
        str(each.broker_id) if each.broker_epoch == EPOCH_NOT_GIVEN else f"{each.broker_id} with epoch {each.broker_epoch}"
        for each in proposal.request.partitions[0].isr
    )
    return f"AlterPartition of broker {proposal.request.broker_id} (in sync: {', '.join(members)})"
