"""A cluster of three brokers and one partition, step by step: which replicas are in sync, what is committed, and what is lost (KIP-903).

A step is one thing that happens to one broker, or to the controller. Its effects are in ``Traffic``, and those on the records in
``Ledger``. There are no unclean elections and no eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.controller import BrokerState, Controller
from snaprebuild.simulations.isr.messages import MessageLog
from snaprebuild.simulations.isr.replica import Replica
from snaprebuild.simulations.isr.steps import BROKERS, Danger, Loss, ReplicaView, Step, Verb, View
from snaprebuild.simulations.isr.traffic import Channel, Ledger, Traffic

__all__ = ["Cluster"]


class Cluster:
    """Three brokers that are registered, unfenced and in sync, with an empty log; 1 leads.

    Attributes:
        mode: of epochs.
        min_insync_replicas: least count in sync for a producer with ``acks=all``, 1 to 3.
        reported: what happened in the last step, in words; empty unless it is asked for.
        traffic: the messages.
        messages: takes the requests and responses of the last step; None unless it is asked for.
    """

    def __init__(
        self, mode: Mode, *, min_insync_replicas: int = 1, reports: bool = False, messages: MessageLog | None = None
    ) -> None:
        self.messages = messages
        self.mode = mode
        self.min_insync_replicas = min_insync_replicas
        self.reported: list[str] = []
        report: Callable[[str], None] = self.reported.append if reports else _discard
        controller = Controller(mode, BROKERS)
        image = controller.image
        replicas = {each: Replica(each, mode, image.brokers[each].epoch, image, min_insync_replicas) for each in BROKERS}
        self._ledger = Ledger(report)
        self.traffic = Traffic(controller, replicas, self._ledger, report, messages)
        self._controller = controller
        self._replicas = replicas
        self._report = report
        self._produced = 0
        self._actions: dict[Verb, Callable[[Replica], None]] = {
            Verb.PRODUCE: self._produce,
            Verb.FETCH: self.traffic.fetch,
            Verb.SHRINK: self.traffic.send_shrink,
            Verb.DELIVER_ALTER: self.traffic.deliver_alter,
            Verb.CRASH: self._crash,
            Verb.SHUT_DOWN: self._shut_down,
            Verb.STOP: self._stop,
            Verb.LOSE_TAIL: self._lose_tail,
            Verb.REPLACE_DISK: self._replace_disk,
            Verb.START: self._start,
            Verb.EXPIRE: self._expire,
            Verb.FENCE: self._fence,
            Verb.UNFENCE: self._unfence,
            Verb.OLD_FETCH: self._old_fetch,
            Verb.HOLD_FETCHES: partial(self.traffic.hold, Channel.FETCHES),
            Verb.RELEASE_FETCHES: partial(self.traffic.release, Channel.FETCHES),
            Verb.HOLD_METADATA: partial(self.traffic.hold, Channel.METADATA),
            Verb.RELEASE_METADATA: partial(self.traffic.release, Channel.METADATA),
        }

    @property
    def losses(self) -> list[Loss]:
        """Losses so far."""
        return self._ledger.losses

    @property
    def stale_joins(self) -> int:
        """How often a replica joined for what an earlier process of it had fetched."""
        return self._ledger.stale_joins

    @property
    def danger(self) -> Danger:
        """How near a loss is, for an observer."""
        in_sync = [self._replicas[each] for each in self._controller.image.partition.isr]
        if self._ledger.is_thin(in_sync, {each.id for each in in_sync if each.is_running and self.state(each).is_active}):
            return Danger.THIN
        outdated = self.traffic.outdated()
        return Danger.OUTDATED if any(self._ledger.lacking(self._replicas[each]) for each in outdated) else Danger.NONE

    def why_not(self, step: Step) -> str | None:
        """Why a step cannot happen now; None if it can."""
        if step.verb is Verb.FAIL_OVER:
            return None
        replica = self._replicas[step.broker]
        return next((why for prevents, why in _PREVENTED[step.verb] if prevents(self, replica)), None)

    def do(self, step: Step) -> None:
        """Lets a step happen that can, and then whatever follows from it without being held."""
        self.reported.clear()
        if self.messages is not None:
            self.messages.sent.clear()
        if step.verb is Verb.FAIL_OVER:
            self.traffic.fail_over()
        else:
            self._actions[step.verb](self._replicas[step.broker])
        self.traffic.settle()

    def view(self) -> View:
        """The cluster in its present state."""
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
        return View(image.partition, replicas, len(self._ledger.committed), self.traffic.texts())

    def state(self, replica: Replica) -> BrokerState:
        """The broker as the controller has it."""
        return self._controller.image.brokers[replica.id]

    def has_session(self, replica: Replica) -> bool:
        """Whether its session with the controller has not ended."""
        return replica.id in self._controller.sessions

    def leader_is_down(self, replica: Replica) -> bool:
        """Whether the broker from which it would fetch is down."""
        fetch = replica.fetch()
        return fetch is not None and not self._replicas[fetch.to].is_running

    # ------------------------------------------------------------------------------------------------------------ actions

    def _produce(self, replica: Replica) -> None:
        self._produced += 1
        replica.append(self._produced)
        self._report(f"record {self._produced} is at offset {len(replica.log) - 1} of broker {replica.id}")
        self._ledger.advance(replica)

    def _crash(self, replica: Replica) -> None:
        replica.stop()
        self._report(f"broker {replica.id} is down, with log end offset {len(replica.log)} on its disk")

    def _shut_down(self, replica: Replica) -> None:
        self.traffic.with_controller(partial(self._controller.shut_down, replica.id))

    def _stop(self, replica: Replica) -> None:
        replica.stop()
        self.traffic.with_controller(partial(self._controller.fence, replica.id))

    def _lose_tail(self, replica: Replica) -> None:
        replica.log.pop()
        self._report(f"the log of broker {replica.id} ends at offset {len(replica.log)}")

    def _replace_disk(self, replica: Replica) -> None:
        replica.log.clear()
        replica.high_watermark = 0
        self._report(f"broker {replica.id} has an empty disk")

    def _start(self, replica: Replica) -> None:
        replica.start()
        self.traffic.release(Channel.METADATA, replica)
        if self.has_session(replica):
            self._report(
                "the controller refuses to register it: DUPLICATE_BROKER_REGISTRATION, the process before it has a session"
            )

    def _expire(self, replica: Replica) -> None:
        self._controller.expire(replica.id)
        self._report(f"the session of broker {replica.id} has ended")

    def _fence(self, replica: Replica) -> None:
        self.traffic.with_controller(partial(self._controller.fence, replica.id))
        self._report(f"broker {replica.id} is fenced")

    def _unfence(self, replica: Replica) -> None:
        self.traffic.read(replica)
        self.traffic.with_controller(partial(self._controller.unfence, replica.id))
        self._report(f"broker {replica.id} is unfenced")

    def _old_fetch(self, replica: Replica) -> None:
        replica.sends_epoch = False
        self._report(f"broker {replica.id} fetches without its broker epoch")


_RUNNING = (lambda _, replica: replica.is_running, "it is running")
_NOT_LEADING = (lambda _, replica: replica.leading is None, "it does not lead")
_NO_LOG = (lambda _, replica: not replica.log, "its disk is empty")
_FETCHES_HELD = (lambda cluster, replica: cluster.traffic.is_held(Channel.FETCHES, replica.id), "they are held")
_METADATA_HELD = (lambda cluster, replica: cluster.traffic.is_held(Channel.METADATA, replica.id), "they are held")

_PREVENTED: dict[Verb, tuple[tuple[Callable[[Cluster, Replica], object], str], ...]] = {
    Verb.PRODUCE: (
        _NOT_LEADING,
        (lambda _, replica: replica.is_under_min_isr, "NOT_ENOUGH_REPLICAS, fewer are in sync than min.insync.replicas"),
    ),
    Verb.FETCH: (
        (lambda _, replica: replica.fetch() is None, "it has no leader to fetch from"),
        (Cluster.leader_is_down, "the broker from which it would fetch is down"),
    ),
    Verb.SHRINK: (
        _NOT_LEADING,
        (lambda _, replica: replica.is_waiting, "it waits for the answer to an AlterPartition"),
        (lambda _, replica: not replica.lagging(), "no follower lags"),
    ),
    Verb.DELIVER_ALTER: (
        (lambda cluster, replica: not cluster.traffic.has_proposal(replica.id), "no AlterPartition of it is under way"),
    ),
    Verb.HOLD_FETCHES: (_FETCHES_HELD,),
    Verb.HOLD_METADATA: (_METADATA_HELD,),
    Verb.RELEASE_FETCHES: ((lambda cluster, replica: not _FETCHES_HELD[0](cluster, replica), "they are not held"),),
    Verb.RELEASE_METADATA: ((lambda cluster, replica: not _METADATA_HELD[0](cluster, replica), "they are not held"),),
    Verb.CRASH: ((lambda _, replica: not replica.is_running, "it is down"),),
    Verb.SHUT_DOWN: (
        (
            lambda cluster, replica: replica.epoch is None or cluster.state(replica).fenced,
            "it is down, not registered, or fenced",
        ),
        (lambda cluster, replica: cluster.state(replica).in_controlled_shutdown, "it does so already"),
    ),
    Verb.STOP: (
        (
            lambda cluster, replica: replica.epoch is None or not cluster.state(replica).in_controlled_shutdown,
            "it has not asked to shut down",
        ),
    ),
    Verb.LOSE_TAIL: (_RUNNING, _NO_LOG),
    Verb.REPLACE_DISK: (_RUNNING, _NO_LOG),
    Verb.START: (_RUNNING,),
    Verb.EXPIRE: ((lambda cluster, replica: not cluster.has_session(replica), "it has no session"),),
    Verb.FENCE: (
        (lambda cluster, replica: replica.is_running and cluster.has_session(replica), "it is running and has a session"),
        (lambda cluster, replica: cluster.state(replica).fenced, "it is fenced"),
    ),
    Verb.UNFENCE: (
        (lambda _, replica: replica.epoch is None, "it is down or not registered"),
        (lambda cluster, replica: cluster.state(replica).in_controlled_shutdown, "it is about to go"),
        (lambda cluster, replica: not cluster.state(replica).fenced, "it is not fenced"),
    ),
    Verb.OLD_FETCH: ((lambda _, replica: not replica.sends_epoch, "it does not report its epoch"),),
}
"""The conditions that prevent each step, and the reason in words."""


def _discard(_text: str) -> None:
    """Drops the text: for a run without a listener."""
