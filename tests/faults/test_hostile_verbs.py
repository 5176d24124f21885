"""Every verb over trees that somebody made to do harm: what is no regular file, and names that no one expects.

The verbs are those of the program (`every_verb.py`), so that a new one cannot be forgotten. Here nothing changes while it is read: that is
in `test_changing_verbs.py`; results that are right next to a broker at work are in `test_busy_log.py`.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from budgets import TIER
from command import snaprebuild
from edited_tree import SECRET, Files, Odd, Place
from every_verb import VERBS, filled, is_printable
from same_result import DRAWN, differing, documents, without

QUICK = ("scan", "plan", "verify", "rebuild", "rebuild in place", "inspect stats", "inspect dump", "inspect explain")
EACH_VERB = [pytest.param(name, marks=() if name in QUICK else pytest.mark.full) for name in VERBS]
"""Verbs of log directories are in the quick tier, all others in the full one."""
SECONDS_MAX = 120
"""A run takes some ms; one that waits for a pipe, or reads endless zeros, would never end."""
FILES_MANY = 200
KINDS = (
    Odd("link", "{outside}/secret"),
    Odd("link", "/dev/zero"),
    Odd("link", "."),
    Odd("hard link"),
    Odd("pipe"),
    Odd("socket"),
    Odd("device"),
    Odd("directory"),
)
ODD_NAMES = tuple(
    os.fsdecode(name)
    for name in (
        *(
            b"a\nb",
            b"\x1b[31mred",
            b"\xff\xfe",
            b"-rf",
            b"--output",
            b"$(reboot)",
            b"a b;c",
            b"..snapshot",
            b"...",
            b"x" * 255,
            b"{}%s",
        ),
        *(b"\xff.snapshot", b"a\nb.log", b"\x1b[2J.checkpoint", b"00000000000000000007.log\n", b"99999999999999999999.log"),
        *(b"-1.snapshot", b"+0000000000000000001.log", "\u0660".encode() * 20 + b".snapshot"),
    )
)
ODD_DIRECTORIES = tuple(
    os.fsdecode(name) for name in (b"a\nb-0", b"\x1b[31mred-0", b"\xff\xfe-0", b"..-0", b"-rf-0", b"x" * 249 + b"-0")
)


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
    """Interrupts what waits for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"no end within {SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(place: Place, files: Files, context: str) -> int:
    """Runs the verb; its exit code."""
    try:
        with place.edited(files), no_hang():
            ran = snaprebuild(*filled(place.verb.arguments, place.root))
            assert ran.exit_code in (0, 1, 2, 3, 4, 5)
            assert "unforeseen" not in ran.stdout
            assert SECRET not in ran.stdout + ran.error
            assert is_printable(ran.stdout), repr(ran.stdout)
            for path in (place.root / "out").rglob("*"):
                assert path.is_symlink() or not path.is_file() or SECRET.encode() not in path.read_bytes(), path
    except BaseException as error:
        error.add_note(context)
        raise
    assert [path.name for path in place.outside.iterdir()] == ["secret"], context
    assert (place.outside / "secret").read_text() == SECRET, context
    return ran.exit_code


@pytest.mark.parametrize("name", EACH_VERB)
def test_what_is_no_regular_file(name: str, tmp_path: Path) -> None:
    """In the place of a file, another one each time, and next to all files under a name that Kafka might have given.

    The quick tier has every kind in one of the two places, by turns.
    """
    place = Place.made(VERBS[name], tmp_path)
    names = place.names()
    for number, odd in enumerate(KINDS):
        victim = names[(number * 5 + 1) % len(names)]
        named = str(place.root / victim) in filled(place.verb.arguments, place.root)
        is_replaced = TIER != "quick" or (number + list(VERBS).index(name)) % 2 == 0
        is_added = TIER != "quick" or not is_replaced
        if is_replaced and not (odd.kind == "hard link" and named):  # a secret that is named as a receipt is reported as wrong
            check(place, {**place.files, victim: odd}, f"{name}: {victim!r} is {odd}")
        if is_added:
            more = {each: odd for each in map(later, place.files) if each not in place.files}
            check(place, {**place.files, **more}, f"{name}: {odd} next to all files")


@pytest.mark.full
@pytest.mark.parametrize("name", VERBS)
def test_text_of_another_file(name: str, tmp_path: Path) -> None:
    """Each small file by turns has the text of a file that is not of the broker: no result quotes it."""
    place = Place.made(VERBS[name], tmp_path)
    given = filled(place.verb.arguments, place.root)
    for victim in place.names():
        is_named = str(place.root / victim) in given  # a file that is named as a receipt or plan is quoted
        if not is_named and not os.path.basename(victim)[:20].isdigit():
            check(place, {**place.files, victim: Odd("hard link")}, f"{name}: {victim!r} has the text of another file")


@pytest.mark.parametrize("name", EACH_VERB)
def test_partitions_that_are_links(name: str, tmp_path: Path) -> None:
    """To a secret, to the directory above, and to themselves."""
    place = Place.made(VERBS[name], tmp_path)
    above = {os.path.dirname(os.path.dirname(each)) for each in place.files if os.path.dirname(each)}
    targets = {"elsewhere-0": "{outside}", "loop-0": ".", "itself-0": "itself-0"}
    links: Files = {os.path.join(each, link): Odd("link", target) for each in above for link, target in targets.items()}
    check(place, {**place.files, **links}, name)


def later(name: str) -> str:
    """The name of a file with a higher offset, where it begins with one."""
    directory, base = os.path.split(name)
    offset = int(base[:20]) + 1000 if base[:20].isdigit() else None
    return os.path.join(directory, f"more-{base}" if offset is None else f"{offset:020d}{base[20:]}")


@pytest.mark.parametrize("name", EACH_VERB)
def test_names(name: str, tmp_path: Path) -> None:
    """In every directory files and directories with names that break lines, terminals, and programs."""
    place = Place.made(VERBS[name], tmp_path)
    directories = {os.path.dirname(each) for each in place.files}
    files: Files = {os.path.join(each, odd): b"?" for each in directories for odd in ODD_NAMES}
    check(place, {**place.files, **files}, name)
    copies = {
        os.path.join(os.path.dirname(os.path.dirname(each)), odd, os.path.basename(each)): data
        for each, data in place.files.items()
        for odd in ODD_DIRECTORIES
        if os.path.dirname(each)
    }
    check(place, {**place.files, **copies}, f"{name}: directories")


@pytest.mark.full
@pytest.mark.parametrize("name", VERBS)
def test_many_files(name: str, tmp_path: Path) -> None:
    """In every directory more files that Kafka does not know than it has of its own: the result is that of the healthy tree.

    `scripts/bench/large_inputs.py files` does it with 100,000, and measures time and memory.
    """
    place = Place.made(VERBS[name], tmp_path)
    more: Files = {
        os.path.join(directory, f"{number:020d}.snapshot.old"): b""
        for directory in {os.path.dirname(each) for each in place.names()}
        for number in range(FILES_MANY)
    }
    with place.edited(dict(place.files)):
        words = filled((*place.verb.arguments, "--output", "json"), place.root)
        healthy = snaprebuild(*words)
    with place.edited({**place.files, **more}):
        ran = snaprebuild(*words)
    assert healthy.exit_code == ran.exit_code
    assert healthy.exit_code in (0, 1)
    assert list(differing(_reported(healthy.stdout), _reported(ran.stdout))) == []


def _reported(output: str) -> list[Any]:
    """Without counts of files that are unknown, and ids that are drawn."""
    found = [without(each, ("unknown", "unknown_objects", "unknown_contents")) for each in documents(DRAWN.sub("ID", output))]
    for document in found:
        if "states" in document:
            document["states"] = [each for each in document["states"] if each["state"] != "foreign"]
        if isinstance(document.get("findings"), list):
            document["findings"] = [
                each for each in document["findings"] if each["code"] not in ("tier-unknown-objects", "unknown-files")
            ]
    return found
