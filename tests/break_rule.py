"""A plugin of pytest (``-p break_rule``): breaks the rule or step that ``TEST_BROKEN_RULE`` names, in this process, for the whole run."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from broken_code import BrokenCode, broken
from budgets import TIER
from hypothesis import Phase, settings

sys.path += [str(Path(__file__).parent / directory) for directory in ("faults", "broker")]

_stack = ExitStack()


def broken_code_of(name: str) -> BrokenCode:
    """The rule or step of this name."""
    from broken_steps import BROKEN_STEPS

    for each in BROKEN_STEPS:
        if each.name == name:
            return each
    from broken_replays import BROKEN_RULES  # imports the code of the replays

    return next(each for each in BROKEN_RULES if each.name == name)


def pytest_configure(config: pytest.Config) -> None:
    # The first failure is enough: no example is made smaller.
    settings.register_profile("first failure", settings.get_profile(TIER), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("first failure")
    name = os.environ.get("TEST_BROKEN_RULE")
    if name:
        _stack.enter_context(broken(broken_code_of(name)))


def pytest_unconfigure(config: pytest.Config) -> None:
    _stack.close()
