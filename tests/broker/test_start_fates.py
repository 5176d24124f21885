"""Kafka's own ``LogManager`` makes of each state of ``start_states`` what the committed table says."""

from pathlib import Path

import pytest
from kafka_classpath import LOADED
from start_fates import applies, fates
from start_states import STATES
from start_states.expected import compared, expected_fates, read_table

BY_DAY = ("3.9.2", "4.3.1")


@pytest.mark.kafka
@pytest.mark.parametrize("release", [pytest.param(each, marks=[] if each in BY_DAY else pytest.mark.night) for each in LOADED])
def test_a_release_makes_of_each_state_what_the_table_says(release: str, tmp_path: Path) -> None:
    """All states in one process. A table that is made again is ``python tests/broker/start_fates.py RELEASE``."""
    found = fates(release, STATES, tmp_path)
    expected = {state.name: fate for state, _, fate in expected_fates(release)}
    assert found.keys() == expected.keys()
    different = [name for name, fate in found.items() if compared(expected[name]) != compared(fate)]
    assert not {name: (expected[name], found[name]) for name in different}


def test_the_table_has_a_row_for_each_state_and_release() -> None:
    table = read_table()
    assert set(table) == set(LOADED)
    for release in LOADED:
        assert table[release].keys() == {state.name for state in STATES if applies(state, release)}


def test_healthy_forms_lose_nothing() -> None:
    """By the table: no release refuses, sets aside or cuts what is healthy, unless it is older than the form."""
    newer = {
        "index-cache-of-remote-storage": ("2.8.2",),
        "stray-of-an-earlier-start": ("2.8.2",),
    }
    healthy = [state for state in STATES if state.build.__module__ == "start_states.healthy"]
    assert len(healthy) >= 20
    for state, release, fate in expected_fates():
        if state in healthy and release not in newer.get(state.name, ()):
            assert fate["broker"] == "starts", (state.name, release)
            assert "offline" not in fate, (state.name, release)
