"""Runs the command in this process, by its entry point: for tests of results, which need no process of their own.

A run takes a tenth of the time that one of `command` takes. What a process is for itself stays as it was: priority, umask, signals,
logging. A test that looks at one of these, or starts a program with ``before-start``, runs `command`.

An error that no layer of the program foresaw is raised, where the entry point makes an exit code of it.
"""

import contextlib
import functools
import io
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click
import typer
from command import Run, checked_json
from manifests import REPOSITORY

from snaprebuild.cli.main import app, main
from snaprebuild.errors import SnaprebuildError
from snaprebuild.storage.local import log_dir_guard, process_settings

__all__ = ["command", "in_json", "snaprebuild"]

FORESEEN = (SnaprebuildError, click.ClickException)
_build_command = typer.main.get_command


@functools.cache
def _command_of(application: typer.Typer) -> click.Command:
    """Its verbs and options, which every run would build first."""
    return _build_command(application)


def command() -> typer.core.TyperGroup:
    """All verbs and options."""
    group = _command_of(app)
    assert isinstance(group, typer.core.TyperGroup)
    return group


@contextlib.contextmanager
def _own_settings() -> Iterator[None]:
    """What the entry point sets for its process is taken back."""
    umask = os.umask(0o022)
    os.umask(umask)
    document_umask, on_sigterm = process_settings._caller.umask, signal.getsignal(signal.SIGTERM)
    configured = set(log_dir_guard._configured)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        signal.signal(signal.SIGTERM, on_sigterm)
        process_settings.respect_umask(document_umask)
        log_dir_guard._configured.intersection_update(configured)
        os.umask(umask)


def snaprebuild(*arguments: object, cwd: Path = REPOSITORY) -> Run:
    """As `command.snaprebuild`, in this process."""
    words = [*(str(arguments[0]).split() if arguments else ()), *map(str, arguments[1:])]
    stdout, stderr = (io.TextIOWrapper(io.BytesIO(), "utf-8", errors, newline="\n") for errors in ("strict", "backslashreplace"))
    with (
        _own_settings(),
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["snaprebuild", *words]),
        mock.patch.object(typer.main, "get_command", _command_of),
        mock.patch("snaprebuild.storage.io_limits.policy.set_priority"),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
    ):
        try:
            main()
        except SystemExit as end:
            if isinstance(end.__context__, Exception) and not isinstance(end.__context__, FORESEEN):
                raise end.__context__ from None
            exit_code = end.code or 0
    assert isinstance(exit_code, int)
    texts = []
    for stream in (stdout, stderr):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode(errors="replace"))  # type: ignore[attr-defined]
    assert "Traceback" not in texts[1], texts[1]
    return Run(exit_code, *texts)


def in_json(verb: str, *arguments: object) -> Run:
    """As `command.in_json`, in this process."""
    return checked_json(snaprebuild, verb, *arguments)
