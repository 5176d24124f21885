"""Log directories as brokers find them when they start: each state of the start, small, made of bundled logs by changing their bytes.

``STATES`` are the rows. What each release makes of them is in ``tests/broker/start_fates.toml``: see ``start_fates.py`` there.
"""

from . import (
    checkpoints,
    directories,
    healthy,
    indexes,
    leader_epochs,
    metadata_dirs,
    remote,
    segments,
    snapshots,
    tails,
    topic_ids,
)
from .building import STATES, StartState

__all__ = [
    "STATES",
    "StartState",
    "checkpoints",
    "directories",
    "healthy",
    "indexes",
    "leader_epochs",
    "metadata_dirs",
    "remote",
    "segments",
    "snapshots",
    "tails",
    "topic_ids",
]
