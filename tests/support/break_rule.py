"""A plugin of pytest (``-p break_rule``): breaks the rule or step that ``TEST_BROKEN_RULE`` names, in this process, for the whole run."""

import os
from contextlib import ExitStack

import pytest
from broken_code import broken
from broken_rule_runs import BROKEN_RULES, BROKEN_STEPS
from budgets import TIER
from hypothesis import Phase, settings

_stack = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    # The first failure is enough: no example is made smaller.
    settings.register_profile("first failure", settings.get_profile(TIER), phases=(Phase.explicit, Phase.generate))
    settings.load_profile("first failure")
    name = os.environ.get("TEST_BROKEN_RULE")
    if name:
        code = next(each for each in (*BROKEN_STEPS, *BROKEN_RULES) if each.name == name)
        _stack.enter_context(broken(code))


def pytest_unconfigure(config: pytest.Config) -> None:
    _stack.close()
