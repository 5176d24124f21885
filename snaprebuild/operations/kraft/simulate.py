"""Plays a scenario under each policy that moves the start of a metadata log."""

from __future__ import annotations

from collections.abc import Sequence

from formats import limits
from snaprebuild.cluster.log_start_policies import FollowerMode, Policy
from snaprebuild.cluster.log_start_scenario import Scenario, read_scenario
from snaprebuild.cluster.log_start_simulation import PolicyRun, simulate
from snaprebuild.errors import UsageError
from snaprebuild.storage.regular_file import read_small_file

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
