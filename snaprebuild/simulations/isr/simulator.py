"""A cluster of three brokers and one partition, step by step: which replicas are in sync, what is committed, and what is lost (KIP-903).

A step is one thing that happens to one broker, or to the controller. What follows from it is in ``Traffic``; what it means for the records
is in ``Ledger``. There are no unclean elections and no eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.controller import BrokerState, Controller
from snaprebuild.simulations.isr.replica import Replica
from snaprebuild.simulations.isr.steps import BROKERS, Danger, Loss, ReplicaView, Step, Verb, View
from snaprebuild.simulations.isr.traffic import Channel, Ledger, Traffic

__all__ = ["Cluster"]


class Cluster:
    """Three brokers that are registered, unfenced and in sync, with an empty log; 1 leads.

    Attributes:
        mode: of epochs.
        min_insync_replicas: least count in sync for a producer with ``acks=all``, 1 to 3.
        told: what happened in the last step, in words; empty unless it is asked for.
    """

    def __init__(self, mode: Mode, *, min_insync_replicas: int = 1, tells: bool = False) -> None:
        self.mode, self.min_insync_replicas = mode, min_insync_replicas
        self.told: list[str] = []
        tell: Callable[[str], None] = self.told.append if tells else _tell_nobody
        controller = Controller(mode, BROKERS)
        image = controller.image
        replicas = {each: Replica(each, mode, image.brokers[each].epoch, image, min_insync_replicas) for each in BROKERS}
        self._ledger = Ledger(tell)
        self._traffic = Traffic(controller, replicas, self._ledger, tell)
        self._controller, self._replicas, self._tell = controller, replicas, tell
        self._produced = 0
        self._events: dict[Verb, tuple[Callable[[Replica], str | None], Callable[[Replica], None]]] = {
            Verb.PRODUCE: (self._why_not_produce, self._produce),
            Verb.FETCH: (self._why_not_fetch, self._traffic.fetch),
            Verb.SHRINK: (self._why_not_shrink, lambda replica: self._traffic.send(replica, replica.propose_leave())),
            Verb.DELIVER_ALTER: (self._why_not_deliver_alter, lambda replica: self._traffic.deliver_alter(replica.id)),
            Verb.CRASH: (self._why_not_crash, self._crash),
            Verb.SHUT_DOWN: (self._why_not_shut_down, self._shut_down),
            Verb.STOP: (self._why_not_stop, self._stop),
            Verb.LOSE_TAIL: (self._why_not_lose, self._lose_tail),
            Verb.REPLACE_DISK: (self._why_not_lose, self._replace_disk),
            Verb.START: (self._why_not_start, self._start),
            Verb.EXPIRE: (self._why_not_expire, self._expire),
            Verb.FENCE: (self._why_not_fence, self._fence),
            Verb.UNFENCE: (self._why_not_unfence, self._unfence),
            Verb.OLD_FETCH: (self._why_not_old_fetch, self._old_fetch),
            Verb.HOLD_FETCHES: self._holding(Channel.FETCHES),
            Verb.RELEASE_FETCHES: self._releasing(Channel.FETCHES),
            Verb.HOLD_METADATA: self._holding(Channel.METADATA),
            Verb.RELEASE_METADATA: self._releasing(Channel.METADATA),
        }

    @property
    def losses(self) -> list[Loss]:
        """So far."""
        return self._ledger.losses

    @property
    def stale_joins(self) -> int:
        """How often a replica joined for what an earlier process of it had fetched."""
        return self._ledger.stale_joins

    @property
    def danger(self) -> Danger:
        """How near a loss is, for an observer."""
        in_sync = [self._replicas[each] for each in self._controller.image.partition.isr]
        if self._ledger.is_thin(in_sync, {each.id for each in in_sync if each.is_running and self._state(each).is_active}):
            return Danger.THIN
        outdated = self._traffic.outdated()
        return Danger.OUTDATED if any(self._ledger.lacking(self._replicas[each]) for each in outdated) else Danger.NONE

    def why_not(self, step: Step) -> str | None:
        """Why a step cannot happen now; None where it can."""
        if step.verb is Verb.FAIL_OVER:
            return None
        whether, _ = self._events[step.verb]
        return whether(self._replicas[step.broker])

    def do(self, step: Step) -> None:
        """Lets a step happen that can, and then whatever follows from it without being held."""
        self.told.clear()
        if step.verb is Verb.FAIL_OVER:
            self._traffic.fail_over()
        else:
            _, does = self._events[step.verb]
            does(self._replicas[step.broker])
        self._traffic.settle()

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
        return View(image.partition, replicas, len(self._ledger.committed), self._traffic.texts())

    # ------------------------------------------------------------------------------------------------------------ the log

    def _why_not_produce(self, replica: Replica) -> str | None:
        if replica.leading is None:
            return "it does not lead"
        return "NOT_ENOUGH_REPLICAS, fewer are in sync than min.insync.replicas" if replica.is_under_min_isr else None

    def _produce(self, replica: Replica) -> None:
        self._produced += 1
        replica.append(self._produced)
        self._tell(f"record {self._produced} is at offset {len(replica.log) - 1} of broker {replica.id}")
        self._ledger.advance(replica)

    def _why_not_fetch(self, replica: Replica) -> str | None:
        fetch = replica.fetch()
        if fetch is None:
            return "it has no leader to fetch from"
        return None if self._replicas[fetch.to].is_running else f"broker {fetch.to}, from which it would fetch, is down"

    def _why_not_shrink(self, replica: Replica) -> str | None:
        leading = replica.leading
        if leading is None:
            return "it does not lead"
        if leading.pending is not None:
            return "it waits for the answer to an AlterPartition"
        behind = (each for each in leading.isr if each != replica.id)
        known = {each: state.log_end for each, state in leading.followers.items()}
        return None if any(known.get(each, -1) < len(replica.log) for each in behind) else "nobody lags behind"

    def _why_not_deliver_alter(self, replica: Replica) -> str | None:
        return None if self._traffic.has_proposal(replica.id) else "no AlterPartition of it is under way"

    # ------------------------------------------------------------------------------------------------------------ what is late

    def _holding(self, channel: Channel) -> tuple[Callable[[Replica], str | None], Callable[[Replica], None]]:
        return (
            lambda replica: "they are held" if self._traffic.is_held(channel, replica.id) else None,
            lambda replica: self._traffic.hold(channel, replica.id),
        )

    def _releasing(self, channel: Channel) -> tuple[Callable[[Replica], str | None], Callable[[Replica], None]]:
        return (
            lambda replica: None if self._traffic.is_held(channel, replica.id) else "they are not held",
            lambda replica: self._traffic.release(channel, replica.id),
        )

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
        self._traffic.with_controller(partial(self._controller.shut_down, replica.id))

    def _why_not_stop(self, replica: Replica) -> str | None:
        if replica.epoch is None or not self._state(replica).in_controlled_shutdown:
            return "it has not asked to shut down"
        return None

    def _stop(self, replica: Replica) -> None:
        replica.stop()
        self._traffic.with_controller(partial(self._controller.fence, replica.id))

    def _why_not_lose(self, replica: Replica) -> str | None:
        if replica.is_running:
            return "it is running"
        return None if replica.log else "its disk is empty"

    def _lose_tail(self, replica: Replica) -> None:
        replica.log.pop()
        self._tell(f"the log of broker {replica.id} ends at offset {len(replica.log)}")

    def _replace_disk(self, replica: Replica) -> None:
        replica.log.clear()
        replica.high_watermark = 0
        self._tell(f"broker {replica.id} has an empty disk")

    def _why_not_start(self, replica: Replica) -> str | None:
        return "it is running" if replica.is_running else None

    def _start(self, replica: Replica) -> None:
        replica.start()
        self._traffic.release(Channel.METADATA, replica.id)
        if replica.id in self._controller.sessions:
            self._tell("the controller refuses to register it: DUPLICATE_BROKER_REGISTRATION, the process before it has a session")

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
        self._traffic.with_controller(partial(self._controller.fence, replica.id))
        self._tell(f"broker {replica.id} is fenced")

    def _why_not_unfence(self, replica: Replica) -> str | None:
        if replica.epoch is None:
            return "it is down or not registered"
        if self._state(replica).in_controlled_shutdown:
            return "it is about to go"
        return None if self._state(replica).fenced else "it is not fenced"

    def _unfence(self, replica: Replica) -> None:
        self._traffic.read(replica)
        self._traffic.with_controller(partial(self._controller.unfence, replica.id))
        self._tell(f"broker {replica.id} is unfenced")

    def _why_not_old_fetch(self, replica: Replica) -> str | None:
        return None if replica.tells_epoch else "it does not tell its epoch"

    def _old_fetch(self, replica: Replica) -> None:
        replica.tells_epoch = False
        self._tell(f"broker {replica.id} fetches without its broker epoch")

    def _state(self, replica: Replica) -> BrokerState:
        return self._controller.image.brokers[replica.id]


def _tell_nobody(_text: str) -> None:
    """Where nobody listens; texts are made all the same."""
