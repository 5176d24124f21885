"""Power failures in each of the writers, run for real: some states of the matrix; `scripts/faults/crash_matrix.py` looks at all of them."""

import shutil

import pytest
from crash_matrix_writers import WRITERS, explored
from traced_run import UnknownCallError, changes_of

RUNS_MAX = 8
STATES_MIN = {"plan --save": 5, "undo": 8}

pytestmark = [pytest.mark.strace, pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")]


@pytest.mark.parametrize("name", WRITERS)
def test_no_state_breaks_a_promise_and_another_run_finishes(name: str) -> None:
    figures = explored(name, WRITERS[name], seed=1, runs_max=RUNS_MAX, cuts_max=3)
    assert figures.faults == []
    assert figures.states >= STATES_MIN.get(name, 30), figures


# --- the proof can fail -----------------------------------------------------------------------------------------------------


def test_an_unknown_call_is_an_error() -> None:
    known = '7 openat(AT_FDCWD</x>, "/tree/a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</tree/a>\n'
    assert [change.kind for change in changes_of(known, "/tree")] == ["create"]
    for call in ("ftruncate(3</tree/a>, 0) = 0", "fallocate(3</tree/a>, 0, 0, 10) = 0", 'symlink("/tree/a", "/tree/b") = 0'):
        with pytest.raises(UnknownCallError):
            list(changes_of(f"{known}7 {call}\n", "/tree"))
    assert not list(changes_of("7 ftruncate(3</elsewhere/a>, 0) = 0\n", "/tree"))
