"""Commands about remote storage, followers and sources: none is greener than ``scan`` of the same directory, and health has no word.

The rows are the states of the start. What a command does not ask is in ``NOT_ASKED`` with the reason.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from other_process import live_broker
from start_states import STATES, StartState
from start_states.building import EPOCHS, ORDERS, PAYMENTS, REBORN, log_dir
from start_states.forms import FORMS

from snaprebuild.cli.main import verbs

ZOOKEEPER = "version=0\nbroker.id=1\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n"
AS_OF = ("--as-of", "1795266500000")

OF_SNAPSHOTS = frozenset({"snapshots-removed", "swap-finished"})
OF_ONE_LOG = frozenset(
    {
        *OF_SNAPSHOTS,
        *("emptied", "records-cut", "end-lost", "catches-up", "stray", "stray-deleted"),
        *("leading-deletes-remote", "leader-epochs-cut", "no-leader-epochs"),
    }
)

NOT_ASKED: dict[str, tuple[frozenset[str], str]] = {
    "cluster source": (frozenset(), ""),
    "tier upload": (frozenset(), ""),
    "follower check": (frozenset(), ""),
    "follower repair": (frozenset(), ""),
    "follower plan": (OF_SNAPSHOTS, "the answers of a leader come from its segments and its offsets"),
    "follower offsets": (OF_SNAPSHOTS, "the answers of a leader come from its segments and its offsets"),
    "follower fetch-path": (OF_SNAPSHOTS, "the answers of a leader come from its segments and its offsets"),
    "tier audit": (OF_SNAPSHOTS, "of a log directory it uses the first offset of each log"),
    "tier metadata": (OF_SNAPSHOTS, "of a log directory it uses the log start offset, the leader epochs and the first offset"),
    "follower build": (OF_ONE_LOG, "it writes a partition that is not there, and touches no other one"),
}
"""By command: the kinds of fates that it does not ask about, and why."""

OBJECTS_ALONE = ("tier inventory", "tier repair")
"""Commands that read objects and no log directory, of which server.properties only has the store: no row is theirs."""

SAMPLE = ("clean-stop", "log-end-lost-clean", "odd-directory", "topic-id-file-empty")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the rolled segments of the partitions that the states are made of."""
    place = tmp_path_factory.mktemp("uploaded")
    logs = log_dir(place, PAYMENTS, ORDERS, EPOCHS, REBORN)
    (logs / "meta.properties").write_text(ZOOKEEPER)
    (place / "store").mkdir()
    assert snaprebuild("tier upload", place / "store", logs, "--i-am-the-leader").exit_code == 0
    return place / "store"


def words_of(verb: str, directory: Path, store: Path) -> tuple[object, ...]:
    """The words of a command about a log directory that writes nothing."""
    absent = "shrink-0" if not (directory / "shrink-0").exists() else "reborn-0"
    return {
        "cluster source": (directory, "--i-am-the-leader"),
        "tier upload": (store, directory, "--dry-run", "--i-am-the-leader"),
        "follower check": (store, directory, *AS_OF),
        "follower repair": (store, directory, "--dry-run", *AS_OF),
        "follower plan": (store, directory),
        "follower offsets": (store, directory),
        "follower fetch-path": (store, directory),
        "tier audit": (store, "--level", "reachable", "--log-dir", directory, *AS_OF),
        "tier metadata": (store, "--log-dir", directory, "--custom-metadata", "none"),
        "follower build": (store, directory, "--dry-run", "--topic-partition", absent, *AS_OF),
    }[verb]


@pytest.mark.parametrize(
    "state", [pytest.param(each, id=each.name, marks=() if each.name in SAMPLE else pytest.mark.full) for each in STATES]
)
def test_none_is_greener_than_scan(state: StartState, store: Path, tmp_path: Path) -> None:
    """By the first log directory alone, which is what these commands are given."""
    state.build(tmp_path)
    directory = tmp_path / state.log_dirs[0]
    if not directory.is_dir():
        return
    scanned = in_json("scan", directory).document["fates"]
    kinds = {each["kind"] for each in scanned if each["severity"] != "note"}
    for verb, (others, _) in NOT_ASKED.items():
        if kinds - others:
            assert snaprebuild(verb, *words_of(verb, directory, store)).exit_code != 0, (verb, kinds)


@contextlib.contextmanager
def form_of(name: str, base: Path) -> Iterator[Path]:
    """The first log directory of a healthy form."""
    FORMS[name].made(base)
    directory = base / FORMS[name].log_dirs[0]
    with live_broker(directory) if FORMS[name].is_live else contextlib.nullcontext():
        yield directory


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("clean", "JBOD") else pytest.mark.full) for name in FORMS]
)
def test_a_healthy_form_has_no_fate(name: str, store: Path, tmp_path: Path) -> None:
    """Commands that need evidence of the leader say that it lacks; none says anything of the start."""
    base = tmp_path / "node"
    base.mkdir()
    with form_of(name, base) as directory:
        if name == "never started":
            return  # there is no partition
        for verb in NOT_ASKED:
            run = snaprebuild(verb, *words_of(verb, directory, store))
            assert "Kafka's log: " not in run.stderr, (verb, run.stderr)


def test_commands_without_a_row_take_no_log_directory() -> None:
    for name in OBJECTS_ALONE:
        names = {each.name for each in verbs()[name].params}
        assert not {"path", "paths", "directory", "log_dir"} & names, name
