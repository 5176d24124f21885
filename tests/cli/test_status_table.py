"""One status in every command: its numbers and the next command, for each state of the snapshots of a log directory.

Wrong and suspect snapshots are never hidden by missing ones. Each next command runs as printed, does not refuse, and is not the one that
was just run; following it comes to an end.
"""

import contextlib
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import Run, in_json, snaprebuild
from manifests import FIXTURES
from sentences import AGAIN
from snapshot_states import STATES, SnapshotState

import snaprebuild as library
from cli.test_next_command import advice_of, next_words

LOOKS = ("scan", "plan", "rebuild --dry-run", "before-start --dry-run", "stage --dry-run")
"""Commands that write nothing. `stage` gets a directory for ``--to``."""

REPLAYS = ("rebuild --dry-run", "stage --dry-run")
"""These also compare the snapshots that are there, where something is missing."""

STEPS_MAX = 7

NEXT: dict[str, dict[str, str | None]] = {
    "healthy": {"": "verify", "verify": None, "before-start --dry-run": None},
    "compacted": {"": "verify", "verify": None, "before-start --dry-run": None},
    "missing": {
        "scan": "plan",
        "verify": "plan",
        "plan": "rebuild",
        "rebuild --dry-run": "rebuild",
        "before-start --dry-run": "before-start",
        "stage --dry-run": "stage",
    },
    "corrupt": {"": "verify", "verify": "plan --set-aside"},
    "suspect": {"": "verify", "verify": "plan --set-aside"},
    "missing and corrupt": {"": "verify", "verify": "plan --set-aside"},
    "missing and suspect": {"": "verify", "verify": "plan --set-aside"},
    "missing, held": {
        "scan": "plan",
        "verify": "plan",
        "plan": "stage",
        "rebuild --dry-run": "stage",
        "before-start --dry-run": "before-start",
        "stage --dry-run": "stage",
    },
    "suspect, held": {"": "verify", "verify": "plan --set-aside"},
    "missing and suspect, held": {"": "verify", "verify": "plan --set-aside"},
    "wrong at no boundary": {"": "verify", "verify": "scan"},
    "never uploaded": {
        "scan": "plan",
        "verify": "plan",
        "plan": "rebuild",
        "rebuild --dry-run": "rebuild",
        "before-start --dry-run": "before-start",
        "stage --dry-run": "stage",
    },
    "no files of a broker": {"": "plan --out", "scan": "plan", "verify": "plan", "before-start --dry-run": AGAIN},
    "without topic ids": {"": AGAIN},
    "an index is missing": {"": "scan", "scan": AGAIN},
    "stray": {"": "scan", "scan": None, "verify": None, "before-start --dry-run": None},
    "stopped without a snapshot": {
        "": "plan",
        "plan": "rebuild",
        "rebuild --dry-run": "rebuild",
        "before-start --dry-run": "before-start",
        "stage --dry-run": "before-start",
    },
    "unread": {"": AGAIN},
    "nothing": {"": AGAIN},
}
"""The next command by verb: its verb with an option that decides, ``AGAIN`` for an advice without a command; ``""`` for other verbs."""


pytestmark = pytest.mark.usefixtures("own_state_home")


def words_of(verb: str, selected: Sequence[str], place: Path) -> list[str]:
    """The words of a command about a state."""
    name, *options = verb.split()
    if name == "stage":
        options += ["--to", str(place / "staged")]
    return [name, *selected, *options]


def kind_of(words: Sequence[str]) -> str | None:
    """A next command as the table has it."""
    if not words:
        return None
    if words[0] == AGAIN:
        return AGAIN
    deciding = [word for word in words if word in ("--set-aside", "--out")]
    return " ".join([words[0], *deciding])


@pytest.mark.parametrize("verb", [*LOOKS, "verify"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_the_status_of_each_command(state: SnapshotState, verb: str, tmp_path: Path) -> None:
    selected = state.build(tmp_path)
    with contextlib.ExitStack() as stack:
        state.hold(selected, stack)
        words = words_of(verb, selected, tmp_path)
        text = snaprebuild(*words)
        document = in_json(*words).document
    following = NEXT[state.name]
    assert kind_of(next_words(text)) == following.get(verb, following.get("")), text.stdout
    counts = document["counts"]
    is_proven = verb == "verify" or (verb in REPLAYS and counts["suspect"] == 0)
    suspect_now = 0 if is_proven else state.suspect
    expected = {
        "wrong": state.corrupt + (state.suspect if is_proven else 0),
        "suspect": suspect_now,
        "missing": state.missing,
    }
    assert {name: counts[name] for name in expected} == expected
    if expected["wrong"] or suspect_now:
        assert re.search(r"1 snapshot (is proven )?(wrong|suspect)", text.stdout.splitlines()[0])
    assert text.exit_code == document["exit_code"]
    if expected["wrong"] or suspect_now or document["unread"]:
        assert text.exit_code != 0


def remove_strays(log_dir: Path) -> None:
    """Removes what a start of a broker removes: snapshots that are at no base offset, below the last one."""
    for path in log_dir.glob("*/*.snapshot"):
        bases = [int(each.stem) for each in path.parent.glob("*.log")]
        if int(path.stem) < max(bases) and int(path.stem) not in bases:
            path.unlink()


def refusals(run: Run) -> list[str]:
    """The text of a refusal: the exit code is 3, or there is no result."""
    return [run.stderr] if run.exit_code in (2, 3) else []


@pytest.mark.parametrize("verb", [*LOOKS, "verify", "rebuild", "stage"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_every_next_command_runs_and_ends(state: SnapshotState, verb: str, tmp_path: Path) -> None:
    selected = state.build(tmp_path)
    words = words_of(verb, selected, tmp_path)
    seen = [words]
    with contextlib.ExitStack() as stack:
        state.hold(selected, stack)
        run = snaprebuild(*words)
        while True:
            following = next_words(run)
            if not following or following == [AGAIN]:
                return
            advice = advice_of(run)
            if advice == "stop the broker":
                stack.close()
            if advice == "start and stop the broker once":
                remove_strays(Path(selected[0]))
                seen = []
            assert following not in seen, f"{seen} leads back to {following}"
            assert len(seen) <= STEPS_MAX, seen
            seen.append(following)
            run = snaprebuild(*following)
            assert not refusals(run), (following, run)


EXPIRY = {"--as-of": "1795261244275", "--expiration-ms": "86400001"}
OF_EXPIRY = {
    "scan": (),
    "before-start": ("--expiration-ms",),
    "install": (),
    **dict.fromkeys(("plan", "rebuild", "stage", "verify"), (*EXPIRY,)),
}
"""The options of each verb that say when producers expire."""


@pytest.mark.parametrize("verb", [*LOOKS[1:], "verify"])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)
def test_the_next_command_judges_at_the_same_time(state: SnapshotState, verb: str, tmp_path: Path) -> None:
    """With other times it may find another state than the one that it follows from."""
    selected = state.build(tmp_path)
    words = words_of(verb, selected, tmp_path)
    given = OF_EXPIRY[words[0]]
    with contextlib.ExitStack() as stack:
        state.hold(selected, stack)
        following = next_words(snaprebuild(*words, *(word for name in given for word in (name, EXPIRY[name]))))
    if following and following != [AGAIN]:
        expected = {name: EXPIRY[name] for name in given if name in OF_EXPIRY[following[0]]}
        assert {name: following[following.index(name) + 1] for name in EXPIRY if name in following} == expected


def test_a_plan_finds_what_verify_has_proven(tmp_path: Path) -> None:
    """With the usual expiration its producers have expired, so that all snapshots are equal."""
    logs = Path(shutil.copytree(FIXTURES / "damaged" / "false-empty", tmp_path / "logs"))
    verified = snaprebuild("verify", logs, "--as-of", 1795266500000, "--expiration-ms", 1000000000000)
    words = ["plan", str(logs), "--as-of", "1795266500000", "--expiration-ms", "1000000000000", "--set-aside"]
    assert next_words(verified) == words
    call = library.verify(logs, as_of_ms=1795266500000, expiration_ms=1000000000000)
    assert call.next_command == f"snaprebuild {' '.join(words)}"
    rebuilt = in_json(*next_words(snaprebuild(*words)))
    assert rebuilt.document["totals"]["set_aside"] == 1
