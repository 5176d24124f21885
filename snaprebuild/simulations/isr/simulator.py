"""A cluster of three brokers and one partition, step by step: which replicas are in sync, what is committed, and what is lost (KIP-903).

A step is one thing that happens to one broker, or to the controller. Its effects are in ``Traffic``, and those on the records in
``Ledger``. There are no unclean elections and no eligible leader replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from snaprebuild.cluster.metadata.registered_model import BrokerRegistration
from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.controller import SimulatedController
from snaprebuild.simulations.isr.messages import MessageLog
from snaprebuild.simulations.isr.replica import SimulatedReplica
from snaprebuild.simulations.isr.steps import BROKERS, ClusterState, ClusterStep, Danger, SimulatedBroker, SimulatedLoss, StepVerb
from snaprebuild.simulations.isr.traffic import Channel, Ledger, Traffic

__all__ = ["Cluster"]


class Cluster:
    """Three brokers that are registered, unfenced and in sync, with an empty log; 1 leads.

    Attributes:
        mode: of epochs.
        min_insync_replicas: least count in sync for a producer with ``acks=all``, 1 to 3.
        effects: of the last step, one sentence each; empty unless reports are on.
        traffic: the messages.
        messages: takes the requests and responses of the last step; None for a run without them.
    """

    def __init__(
        self, mode: Mode, *, min_insync_replicas: int = 1, reports: bool = False, messages: MessageLog | None = None
    ) -> None:
        self.messages = messages
        self.mode = mode
        self.min_insync_replicas = min_insync_replicas
        self.effects: list[str] = []
        report: Callable[[str], None] = self.effects.append if reports else _discard
        controller = SimulatedController(mode, BROKERS)
        image = controller.image
        replicas = {
            broker: SimulatedReplica(broker, mode, image.brokers[broker].epoch, image, min_insync_replicas) for broker in BROKERS
        }
        self._ledger = Ledger(report)
        self.traffic = Traffic(controller, replicas, self._ledger, report, messages)
        self._controller = controller
        self._replicas = replicas
        self._report = report
        self._produced = 0
        self._actions: dict[StepVerb, Callable[[SimulatedReplica], None]] = {
            StepVerb.PRODUCE: self._produce,
            StepVerb.FETCH: self.traffic.fetch,
            StepVerb.SHRINK: self.traffic.send_shrink,
            StepVerb.DELIVER_ALTER: self.traffic.deliver_alter,
            StepVerb.CRASH: self._crash,
            StepVerb.SHUT_DOWN: self._shut_down,
            StepVerb.STOP: self._stop,
            StepVerb.LOSE_TAIL: self._lose_tail,
            StepVerb.REPLACE_DISK: self._replace_disk,
            StepVerb.START: self._start,
            StepVerb.EXPIRE: self._expire,
            StepVerb.FENCE: self._fence,
            StepVerb.UNFENCE: self._unfence,
            StepVerb.OLD_FETCH: self._old_fetch,
            StepVerb.HOLD_FETCHES: partial(self.traffic.hold, Channel.FETCHES),
            StepVerb.RELEASE_FETCHES: partial(self.traffic.release, Channel.FETCHES),
            StepVerb.HOLD_METADATA: partial(self.traffic.hold, Channel.METADATA),
            StepVerb.RELEASE_METADATA: partial(self.traffic.release, Channel.METADATA),
        }

    @property
    def losses(self) -> list[SimulatedLoss]:
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
        if self._ledger.is_thin(
            in_sync, {each.node_id for each in in_sync if each.is_running and self.registration(each).is_active}
        ):
            return Danger.THIN
        outdated = self.traffic.outdated()
        if any(self._ledger.lacking(self._replicas[each]) for each in outdated):
            return Danger.OUTDATED
        return Danger.NONE

    def prevention(self, step: ClusterStep) -> str | None:
        """Why a step cannot happen now; None if it can."""
        if step.verb is StepVerb.FAIL_OVER:
            return None
        replica = self._replicas[step.broker]
        for prevents, reason in _PREVENTED[step.verb]:
            if prevents(self, replica):
                return reason
        return None

    def do(self, step: ClusterStep) -> None:
        """Lets a step happen that can, and then whatever follows from it without being held."""
        self.effects.clear()
        if self.messages is not None:
            self.messages.sent.clear()
        if step.verb is StepVerb.FAIL_OVER:
            self.traffic.fail_over()
        else:
            self._actions[step.verb](self._replicas[step.broker])
        self.traffic.settle()

    def state(self) -> ClusterState:
        """The cluster in its present state."""
        image = self._controller.image
        brokers = tuple(
            SimulatedBroker(
                node_id=replica.node_id,
                is_running=replica.is_running,
                epoch=image.brokers[replica.node_id].epoch,
                fenced=image.brokers[replica.node_id].fenced,
                in_controlled_shutdown=image.brokers[replica.node_id].in_controlled_shutdown,
                log_end_offset=len(replica.log),
                high_watermark=replica.high_watermark,
                leads=replica.leading is not None,
            )
            for replica in self._replicas.values()
        )
        return ClusterState(image.partition, brokers, len(self._ledger.committed), self.traffic.texts())

    def registration(self, replica: SimulatedReplica) -> BrokerRegistration:
        """The registration of a broker."""
        return self._controller.image.brokers[replica.node_id]

    def has_session(self, replica: SimulatedReplica) -> bool:
        """Whether its session with the controller has not ended."""
        return replica.node_id in self._controller.sessions

    def leader_is_down(self, replica: SimulatedReplica) -> bool:
        """Whether the broker from which it would fetch is down."""
        fetch = replica.fetch()
        return fetch is not None and not self._replicas[fetch.to].is_running

    # ------------------------------------------------------------------------------------------------------------ actions

    def _produce(self, replica: SimulatedReplica) -> None:
        self._produced += 1
        replica.append(self._produced)
        self._report(f"record {self._produced} is at offset {len(replica.log) - 1} of broker {replica.node_id}")
        self._ledger.advance(replica)

    def _crash(self, replica: SimulatedReplica) -> None:
        replica.stop()
        self._report(f"broker {replica.node_id} is down, with log end offset {len(replica.log)} on its disk")

    def _shut_down(self, replica: SimulatedReplica) -> None:
        self.traffic.with_controller(partial(self._controller.shut_down, replica.node_id))

    def _stop(self, replica: SimulatedReplica) -> None:
        replica.stop()
        self.traffic.with_controller(partial(self._controller.fence, replica.node_id))

    def _lose_tail(self, replica: SimulatedReplica) -> None:
        replica.log.pop()
        self._report(f"the log of broker {replica.node_id} ends at offset {len(replica.log)}")

    def _replace_disk(self, replica: SimulatedReplica) -> None:
        replica.log.clear()
        replica.high_watermark = 0
        self._report(f"broker {replica.node_id} has an empty disk")

    def _start(self, replica: SimulatedReplica) -> None:
        replica.start()
        self.traffic.release(Channel.METADATA, replica)
        if self.has_session(replica):
            self._report(
                "the controller refuses to register it: DUPLICATE_BROKER_REGISTRATION, the process before it has a session"
            )

    def _expire(self, replica: SimulatedReplica) -> None:
        self._controller.expire(replica.node_id)
        self._report(f"the session of broker {replica.node_id} has ended")

    def _fence(self, replica: SimulatedReplica) -> None:
        self.traffic.with_controller(partial(self._controller.fence, replica.node_id))
        self._report(f"broker {replica.node_id} is fenced")

    def _unfence(self, replica: SimulatedReplica) -> None:
        self.traffic.read(replica)
        self.traffic.with_controller(partial(self._controller.unfence, replica.node_id))
        self._report(f"broker {replica.node_id} is unfenced")

    def _old_fetch(self, replica: SimulatedReplica) -> None:
        replica.sends_epoch = False
        self._report(f"broker {replica.node_id} fetches without its broker epoch")


_RUNNING = (lambda _, replica: replica.is_running, "it is running")
_NOT_LEADING = (lambda _, replica: replica.leading is None, "it does not lead")
_NO_LOG = (lambda _, replica: not replica.log, "its disk is empty")
_FETCHES_HELD = (lambda cluster, replica: cluster.traffic.is_held(Channel.FETCHES, replica.node_id), "they are held")
_METADATA_HELD = (lambda cluster, replica: cluster.traffic.is_held(Channel.METADATA, replica.node_id), "they are held")

_PREVENTED: dict[StepVerb, tuple[tuple[Callable[[Cluster, SimulatedReplica], object], str], ...]] = {
    StepVerb.PRODUCE: (
        _NOT_LEADING,
        (lambda _, replica: replica.is_under_min_isr, "NOT_ENOUGH_REPLICAS, fewer are in sync than min.insync.replicas"),
    ),
    StepVerb.FETCH: (
        (lambda _, replica: replica.fetch() is None, "it has no leader to fetch from"),
        (Cluster.leader_is_down, "the broker from which it would fetch is down"),
    ),
    StepVerb.SHRINK: (
        _NOT_LEADING,
        (lambda _, replica: replica.is_waiting, "it waits for the answer to an AlterPartition"),
        (lambda _, replica: not replica.lagging(), "no follower lags"),
    ),
    StepVerb.DELIVER_ALTER: (
        (lambda cluster, replica: not cluster.traffic.has_proposal(replica.node_id), "no AlterPartition of it is under way"),
    ),
    StepVerb.HOLD_FETCHES: (_FETCHES_HELD,),
    StepVerb.HOLD_METADATA: (_METADATA_HELD,),
    StepVerb.RELEASE_FETCHES: ((lambda cluster, replica: not _FETCHES_HELD[0](cluster, replica), "they are not held"),),
    StepVerb.RELEASE_METADATA: ((lambda cluster, replica: not _METADATA_HELD[0](cluster, replica), "they are not held"),),
    StepVerb.CRASH: ((lambda _, replica: not replica.is_running, "it is down"),),
    StepVerb.SHUT_DOWN: (
        (
            lambda cluster, replica: replica.epoch is None or cluster.registration(replica).fenced,
            "it is down, not registered, or fenced",
        ),
        (lambda cluster, replica: cluster.registration(replica).in_controlled_shutdown, "it does so already"),
    ),
    StepVerb.STOP: (
        (
            lambda cluster, replica: replica.epoch is None or not cluster.registration(replica).in_controlled_shutdown,
            "it has not asked to shut down",
        ),
    ),
    StepVerb.LOSE_TAIL: (_RUNNING, _NO_LOG),
    StepVerb.REPLACE_DISK: (_RUNNING, _NO_LOG),
    StepVerb.START: (_RUNNING,),
    StepVerb.EXPIRE: ((lambda cluster, replica: not cluster.has_session(replica), "it has no session"),),
    StepVerb.FENCE: (
        (lambda cluster, replica: replica.is_running and cluster.has_session(replica), "it is running and has a session"),
        (lambda cluster, replica: cluster.registration(replica).fenced, "it is fenced"),
    ),
    StepVerb.UNFENCE: (
        (lambda _, replica: replica.epoch is None, "it is down or not registered"),
        (lambda cluster, replica: cluster.registration(replica).in_controlled_shutdown, "it is about to go"),
        (lambda cluster, replica: not cluster.registration(replica).fenced, "it is not fenced"),
    ),
    StepVerb.OLD_FETCH: ((lambda _, replica: not replica.sends_epoch, "it does not report its epoch"),),
}
"""The conditions that prevent each step, and the reason in words."""


def _discard(_text: str) -> None:
    """Drops the text: for a run without a listener."""
