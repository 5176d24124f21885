"""Plays a scenario under each policy that moves the start of a metadata log."""

from __future__ import annotations

from collections.abc import Sequence

from formats import limits
from snaprebuild.cluster.quorum.log_start_policies import FollowerMode, Policy
from snaprebuild.errors import UsageError
from snaprebuild.simulations.metadata_log.scenario import Scenario, read_scenario
from snaprebuild.simulations.metadata_log.simulation import PolicyRun, simulate
from snaprebuild.storage.local.regular_file import read_small_file

__all__ = ["kraft_simulate", "load_scenario"]


def load_scenario(path: str) -> Scenario:
    """Reads a scenario file.

    Raises:
        UsageError: there is none, or it is wrong.
        ReadFailedError: it cannot be read, or is larger than ``limits.SCENARIO_BYTES_MAX``.
    """
    data = read_small_file(path, limits.SCENARIO_BYTES_MAX)
    if data is None:
        raise UsageError("does not exist", path=path)
    return read_scenario(data, path)


def kraft_simulate(scenario: Scenario, policies: Sequence[Policy], mode: FollowerMode, samples: int) -> list[PolicyRun]:
    """One run for each policy.

    Raises:
        UsageError: as ``simulate``.
    """
    return [simulate(scenario, policy, mode, samples) for policy in policies]
