"""Power failures in each of the writers, run for real: some states of the matrix; `scripts/crash-matrix` looks at all of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_matrix_writers import WRITERS, Figures, bare_log, explored, faults, recorded
from traced_run import Change, UnknownCallError, changes_of
from tree_model import File, TreeDisk

RUNS_MAX = 8
STATES_MIN = {"plan --save": 5, "undo": 8}

pytestmark = [pytest.mark.strace, pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")]


@pytest.mark.parametrize("name", WRITERS)
def test_no_state_breaks_a_promise_and_another_run_finishes(name: str) -> None:
    figures = explored(name, WRITERS[name], seed=1, runs_max=RUNS_MAX, cuts_max=3)
    assert figures.faults == []
    assert figures.states >= STATES_MIN.get(name, 30), figures


def test_figures_add_up() -> None:
    assert Figures("all", 1, 2, 3, ["a"], 1.0).plus(Figures("one", 1, 2, 3, ["b"], 1.0)) == Figures("all", 2, 4, 6, ["a", "b"], 2.0)


# --- the proof can fail -----------------------------------------------------------------------------------------------------


def without_syncs_of_files(changes: list[Change]) -> Iterator[Change]:
    files: set[int] = set()
    for change in changes:
        if change.kind == "create":
            files.add(change.fd)
        elif change.kind in ("open", "close"):
            files.discard(change.fd)
        if not (change.kind == "sync" and change.fd in files):
            yield change


def test_a_writer_that_does_not_sync_is_found() -> None:
    """The calls of a real run, and the same without the syncs of files."""
    writer = WRITERS["rebuild in place"]
    with recorded(writer) as (_, run):
        fresh = run.root.with_name("fresh")
        (fresh / "receipts").mkdir(parents=True)
        bare_log(fresh)

        def found(changes: list[Change]) -> set[str]:
            disk, rng, wrong = TreeDisk(fresh), random.Random(1), set()
            for change in changes:
                disk.follow(change)
                for tree in disk.states(rng, 4):
                    wrong |= {each.split(" ", 1)[1] for each in faults(writer, run, tree)}
            return wrong

        assert found(run.changes) == set()
        assert found(list(without_syncs_of_files(run.changes))) == {"is half a file, or may not be read by the broker"}


def test_an_unknown_call_is_an_error() -> None:
    known = '7 openat(AT_FDCWD</x>, "/tree/a", O_WRONLY|O_CREAT|O_EXCL, 0644) = 3</tree/a>\n'
    assert [change.kind for change in changes_of(known, "/tree")] == ["create"]
    for call in ("ftruncate(3</tree/a>, 0) = 0", "fallocate(3</tree/a>, 0, 0, 10) = 0", 'symlink("/tree/a", "/tree/b") = 0'):
        with pytest.raises(UnknownCallError):
            list(changes_of(f"{known}7 {call}\n", "/tree"))
    assert not list(changes_of("7 ftruncate(3</elsewhere/a>, 0) = 0\n", "/tree"))


def test_what_a_tree_may_become(tmp_path: Path) -> None:
    """By hand: a directory that is not synced may be gone with a file in it that is."""
    disk = TreeDisk(tmp_path)
    for change in (
        Change("mkdir", "d", numbers=(0o755,)),
        Change("create", "d/f", fd=3),
        Change("write", fd=3, data=b"abc"),
        Change("sync", fd=3),
        Change("open", "d", fd=4),
        Change("sync", fd=4),
    ):
        disk.follow(change)
    left = {tuple(sorted(tree)) for tree in disk.states(random.Random(1), 20)}
    assert left == {("",), ("", "d", "d/f")}
    disk.follow(Change("open", "", fd=5))
    disk.follow(Change("sync", fd=5))
    (tree,) = {tuple(sorted(tree)): tree for tree in disk.states(random.Random(1), 20)}.values()
    assert isinstance(tree["d/f"], File)
    assert tree["d/f"].content.data == b"abc"
