"""Power failures in each of the writers, watched in this process; `test_crash_matrix` does the same with strace, and runs each again."""

import pytest
from crash_matrix_writers import WRITERS, explored
from watched_run import watched

STATES_MIN = {"plan --save": 5, "undo": 8, "stage": 20}


@pytest.mark.parametrize("name", WRITERS)
def test_no_state_breaks_a_promise(name: str) -> None:
    figures = explored(name, WRITERS[name], seed=1, runs_max=0, cuts_max=1, record=watched)
    assert figures.faults == []
    assert figures.states >= STATES_MIN.get(name, 30), figures
