"""The documents of ``simulate isr`` and ``simulate metadata-log``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from snaprebuild.cluster.quorum.log_start import FollowerMode
from snaprebuild.published import Document, Natural, Streamed
from snaprebuild.simulations.isr.scenarios import PlayedScenario
from snaprebuild.simulations.isr.search import SearchResult
from snaprebuild.simulations.metadata_log.simulation import PolicyRun

__all__ = ["SimulateIsr", "SimulateMetadataLog"]


class SimulateIsr(Document, frozen=True):
    """The JSON document of `snaprebuild simulate isr`."""

    NAME = "simulate-isr"
    VERSION = 3

    min_insync_replicas: Annotated[int, msgspec.Meta(ge=1, le=3)]
    scenarios: Sequence[PlayedScenario]
    seed: Natural | None
    """Seed of the search; null without one."""
    searches: Sequence[SearchResult]


class SimulateMetadataLog(Document, frozen=True):
    """The JSON document of `snaprebuild simulate metadata-log`."""

    NAME = "simulate-metadata-log"
    VERSION = 3

    scenario: str
    """Path of the file."""
    title: str
    """From the file."""
    duration_ms: Natural
    followers: FollowerMode
    """Start of a follower under kafka-14932."""
    policies: Streamed[PolicyRun]
