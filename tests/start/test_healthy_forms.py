"""Nodes in health: no command finds anything, says more than one line about it, or keeps a broker from its start."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import in_json, snaprebuild, snaprebuild_process
from log_dirs import tree
from other_process import live_broker
from refused_reads import refused
from sentences import NONE_MISSING, NOTHING_TO_REBUILD
from start_states.forms import FORMS, Form

HEALTHY = NONE_MISSING
FIRST_LINES = {
    "scan": HEALTHY,
    "verify": "",
    "plan": "Nothing to rebuild in ",
    "rebuild": f"Dry run: nothing was written; {NOTHING_TO_REBUILD}",
    "stage": f"Dry run: nothing was written; {NOTHING_TO_REBUILD}",
    "before-start": NONE_MISSING,
}
"""Beginning of the first line, by command."""

NOT_STARTED = "No partition is here: this broker has not started yet."
NOTES = {
    "killed": {"unclean-shutdown", "not-due"},
    "combined": {"above-last-stable-offset"},
    "JBOD": {"future-directory"},
    "live": {"running-broker", "live-broker"},
}
"""Codes of the notes of a form; the others have none. They are printed with ``-v`` only."""

NEXT = {"scan": "verify", "verify": None, "plan": "verify", "rebuild": "verify", "stage": "verify", "before-start": None}
"""The verb of the next command."""


@contextlib.contextmanager
def made(name: str, tmp_path: Path) -> Iterator[tuple[Form, Path]]:
    """A form, and the path of its ``server.properties``."""
    form, base = FORMS[name], tmp_path / "node"
    base.mkdir()
    path = form.made(base)
    with live_broker(base / form.log_dirs[0]) if form.is_live else contextlib.nullcontext():
        yield form, path


def words_of(verb: str, form: Form, properties: Path) -> list[object]:
    """The words of a command that writes nothing."""
    words: list[object] = [verb, "--server-properties", properties, "--kafka-release", form.release]
    if verb in ("rebuild", "stage", "before-start"):
        words.append("--dry-run")
    if verb == "stage":
        staged = properties.parent.parent / "staged"
        staged.mkdir(exist_ok=True)
        words += ["--to", staged]
    return words


SAMPLE = ("JBOD", "controller only", "in migration", "never started")
EACH = [pytest.param(form, marks=() if form in SAMPLE else pytest.mark.full) for form in FORMS]


@pytest.mark.parametrize("name", EACH)
def test_no_command_finds_anything(tmp_path: Path, name: str) -> None:
    with made(name, tmp_path) as (form, properties):
        before = tree(properties.parent)
        for verb, first in FIRST_LINES.items():
            run = snaprebuild(*words_of(verb, form, properties))
            assert run.exit_code == 0, (verb, run)
            expected = NOT_STARTED if name == "never started" else first
            assert run.text.startswith(expected), (verb, run.text)
            assert len(run.stderr.splitlines()) <= 1, (verb, run.stderr)
            if verb != "before-start":
                following = run.text.partition(" Next: ")[2]
                next_words = "nothing to do" if NEXT[verb] is None else f"snaprebuild {NEXT[verb]} "
                if name == "never started":
                    next_words = "run this command again after its first start"
                assert following.startswith(next_words), (verb, run.text)
        assert tree(properties.parent) == before


@pytest.mark.parametrize("name", EACH)
def test_at_most_one_line_of_note(tmp_path: Path, name: str) -> None:
    with made(name, tmp_path) as (form, properties):
        for verb in ("scan", "plan"):
            findings = in_json(*words_of(verb, form, properties)).document["findings"]
            assert {each["severity"] for each in findings} <= {"note"}
            assert {each["code"] for each in findings} <= NOTES.get(name, set()), (verb, findings)
            assert len(findings) <= 1


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
def test_of_the_segments_only_the_last_is_read(tmp_path: Path, name: str) -> None:
    """By ``scan``. The metadata log is read from its beginning."""
    hit: list[str] = []
    with made(name, tmp_path) as (form, properties), contextlib.ExitStack() as stack:
        for directory in properties.parent.glob("*/*-0"):
            for rolled in sorted(directory.glob("*.log"))[:-1] if directory.name != "__cluster_metadata-0" else ():
                stack.enter_context(refused(rolled, errno.EACCES, hit))
        assert snaprebuild(*words_of("scan", form, properties)).exit_code == 0
    assert hit == []


@pytest.mark.full
@pytest.mark.parametrize("name", FORMS)
def test_the_broker_starts(tmp_path: Path, name: str) -> None:
    """By default in any case; with ``--fail-closed`` too, unless another process holds the directory."""
    with made(name, tmp_path) as (form, properties):
        for options in ([], ["--fail-closed"]):
            witness = tmp_path / "started"
            snaprebuild_process(*words_of("before-start", form, properties), *options, "--", "touch", witness)
            assert witness.exists() is not (bool(options) and form.is_live)
            witness.unlink(missing_ok=True)
