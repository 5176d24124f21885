"""How the simulated cluster uses broker epochs.

This is apart from the cluster itself: the command line names the modes in its help, and loads nothing for that.

Source: KIP-903 and its rejected alternatives.
"""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Mode"]


class Mode(StrEnum):
    """Which broker epoch is sent, and which role checks it."""

    NO_EPOCHS = "no-epochs"
    """AlterPartition version 2: replicas are named by broker id alone."""
    KIP_903 = "kip-903"
    """The epoch with which a follower fetched; the leader and the controller compare it with the registered one."""
    EPOCHS_FROM_METADATA = "epochs-from-metadata"
    """Rejected by the KIP: the leader sends the epoch that its metadata has for the follower, whatever process fetched."""
    BUMP_LEADER_EPOCHS = "bump-leader-epochs"
    """Rejected by the KIP: no epochs of brokers; each new registration raises the leader epoch of every partition of the broker."""
