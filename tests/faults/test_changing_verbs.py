"""Every verb while a file changes under it: it shows the state before or after the change, or refuses.

The change happens at a chosen call of the run, and not at a time: before or after a file is opened, or a directory listed.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild
from edited_tree import Place
from every_verb import VERBS, filled
from same_result import DRAWN, OF_THE_RUN, differing, without
from sentences import DELETED_MEANWHILE

pytestmark = pytest.mark.full

REFUSALS = (3, 5)
OF_THE_LISTING = ("bytes", "size_bytes", "deleted_bytes", "stays_because")
"""Sizes are reported as they were listed, next to what was read later."""
NOT_COMPARED = OF_THE_RUN + OF_THE_LISTING
SAYS_SO = re.compile(
    rf"cannot be opened: No such file|changed while|{DELETED_MEANWHILE}|(is|are) gone|has changed|is the active segment"
    r"|tier-not-audited|busy-log|in-flux"
)
DAMAGED = 4
VICTIMS = 3


def grown(path: Path) -> None:
    """Half a batch more, or half a line."""
    data = path.read_bytes()
    path.write_bytes(data + data[:40])


def shrunk(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def deleted(path: Path) -> None:
    """Renames a segment as retention does."""
    path.rename(f"{path}.deleted")


def gone(path: Path) -> None:
    path.unlink()


def compacted(path: Path) -> None:
    """Another file of this name, of which a batch is gone; in the middle of others a line."""
    data = path.read_bytes()
    other = path.with_name(f"{path.name}.swap")
    if path.suffix == ".log" and len(data) > 12:
        size = 12 + int.from_bytes(data[8:12], "big")
        data = data[size:]
    else:
        data = data[: len(data) // 2]
    other.write_bytes(data)
    other.replace(path)


def rolled(path: Path) -> None:
    """A file after it, as of a new segment, with nothing in it."""
    name = path.name
    base = f"{int(name[:20]) + 1000:020d}{name[20:]}" if name[:20].isdigit() else f"more-{name}"
    path.with_name(base).write_bytes(b"")


CHANGES: tuple[Callable[[Path], None], ...] = (grown, shrunk, deleted, gone, compacted, rolled)


@dataclass
class Calls:
    """Counts the calls of a run, and acts at one of them.

    Attributes:
        at: number of the call, 0 for none.
        act: what happens before it.
        names: of each call, the last part of what it names.
    """

    at: int = 0
    act: Callable[[], None] = lambda: None
    names: list[str] = field(default_factory=list)


_watching: list[Calls] = []
"""The one run that is watched."""


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if not _watching or event not in ("open", "os.scandir", "os.listdir"):
        return
    calls, path = _watching[0], arguments[0]
    calls.names.append(os.path.basename(os.fsdecode(path)) if isinstance(path, str | bytes) else "")
    if len(calls.names) == calls.at:
        _watching.clear()  # what somebody else does are no calls of the run
        calls.act()
        _watching.append(calls)


sys.addaudithook(_audit)


@contextmanager
def counted(calls: Calls) -> Iterator[None]:
    _watching.append(calls)
    try:
        yield
    finally:
        _watching.clear()


Outcome = tuple[int, str]


def outcome(place: Place, calls: Calls) -> Outcome:
    arguments = filled((*place.verb.arguments, "--output", "json"), place.root)
    with counted(calls):
        ran = snaprebuild(*arguments)
    assert ran.exit_code in (0, 1, 2, 3, 4, 5)
    documents = [without(json.loads(each), NOT_COMPARED) for each in _documents(place, ran.stdout)]
    return ran.exit_code, DRAWN.sub("ID", json.dumps(documents, sort_keys=True))


def _documents(place: Place, output: str) -> list[str]:
    return output.splitlines() if place.verb.arguments[:2] == ("inspect", "dump") else [output] if output else []


def differences(one: Outcome, other: Outcome) -> list[str]:
    return list(differing(json.loads(one[1]), json.loads(other[1])))


def is_refused(found: Outcome) -> bool:
    """It says that something could not be read, is not what it was, or leaves the verdict on the source unknown."""
    if found[0] in REFUSALS or SAYS_SO.search(found[1]):
        return True
    documents = json.loads(found[1])
    findings = [
        each
        for document in documents
        for each in (document.get("findings") if isinstance(document.get("findings"), list) else [document])
    ]
    return any(each.get("severity") in ("refused", "storage") or each.get("code") == "source-unknown" for each in findings)


@pytest.mark.parametrize("name", VERBS)
def test_the_truth_of_a_moment_or_refused(name: str, tmp_path: Path) -> None:
    place = Place.made(VERBS[name], tmp_path)
    for _ in range(2):  # the first run also opens the modules that it imports
        quiet = Calls()
        with place.edited(dict(place.files)):
            before = outcome(place, quiet)
    read = [each for each in place.names() if os.path.basename(each) in quiet.names]
    victims = read[:: max(len(read) // VICTIMS, 1)] or place.names()[:VICTIMS]
    moments = set()
    for number, change in enumerate(CHANGES):
        victim = victims[number % len(victims)]
        with place.edited(dict(place.files), {victim}):  # written again it has another inode, of which `install` takes notice
            before = outcome(place, Calls())
        with place.edited(dict(place.files), {victim}):
            change(place.root / victim)
            after = outcome(place, Calls())
        opened = [index + 1 for index, each in enumerate(quiet.names) if each == os.path.basename(victim)]
        for at in {1, *opened[:1], *(each + 1 for each in opened[-1:]), len(quiet.names) // 2, len(quiet.names)}:
            with place.edited(dict(place.files), {victim}):
                found = outcome(place, Calls(at, lambda change=change, victim=victim: change(place.root / victim)))
            moments.add("before" if found == before else "after" if found == after else "refused")
            is_damage = (
                found[0] == after[0] == DAMAGED
            )  # of the same file; what was read before it was damaged may be reported, too
            assert found in (before, after) or is_damage or is_refused(found), (
                f"{change.__name__} of {victim} at call {at} of {len(quiet.names)}: exit code {found[0]}, {before[0]} before, "
                f"{after[0]} behind\n{differences(found, before)}\n{differences(found, after)}"
            )
    assert "before" in moments
