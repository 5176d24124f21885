"""States after steps of the simulator of in-sync replicas, for tests."""

from snaprebuild.simulations.isr import Mode
from snaprebuild.simulations.isr.simulator import Cluster
from snaprebuild.simulations.isr.steps import ClusterStep, SimulatedLossCause

__all__ = ["losses_of"]


def losses_of(mode: Mode, steps: tuple[ClusterStep, ...]) -> list[SimulatedLossCause]:
    """The causes of what is lost when they are played from three fresh brokers; what cannot happen is left out."""
    cluster = Cluster(mode)
    for step in steps:
        if cluster.prevention(step) is None:
            cluster.do(step)
    return [loss.cause for loss in cluster.losses]
