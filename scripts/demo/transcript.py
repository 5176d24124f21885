"""Prints a demonstration: numbered steps, the commands as a user types them, and the facts that each was checked for."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from snaprebuild.findings import pluralize

LINES_SHOWN = 36
ERRORS_SHOWN = 3
WIDTH = 100
ONLY_FOR_MANY = re.compile(r"(\d|\+) (snapshots|segments|partitions|copies|files|boundaries|topics)\b(?!\?)")
"""A fact that holds only as long as a live broker did not make exactly one of them."""


class NotAsExpectedError(Exception):
    """A step came out differently."""


class Transcript:
    """Prints as it goes.

    Attributes:
        work: the directory of the demonstration. What is shown leaves it out: it is gone afterwards.
        elsewhere: a directory outside of it, and how it is shown.
    """

    def __init__(self, work: Path, *, quiet: bool = False) -> None:
        self.checks = 0
        self.work = work
        self.elsewhere: tuple[Path, str] | None = None
        self._quiet = quiet
        self._steps = 0
        self._began = time.monotonic()

    def step(self, title: str) -> None:
        """Begins a step."""
        self._steps += 1
        sys.stdout.write(f"\n== {self._steps}. {title}  [{time.monotonic() - self._began:.0f} s]\n")
        sys.stdout.flush()

    def show(self, text: str) -> None:
        """Prints what somebody else said: the first lines of it."""
        if self._quiet:
            return
        if self.elsewhere is not None:
            text = text.replace(str(self.elsewhere[0]), self.elsewhere[1])
        lines = [line.rstrip() for line in text.replace(f"{self.work}/", "").splitlines()]
        if len(lines) > LINES_SHOWN:
            lines = [*lines[:LINES_SHOWN], f"... and {pluralize(len(lines) - LINES_SHOWN, 'line')} more"]
        sys.stdout.write("".join(f"{line}\n" for line in lines))

    def check(self, what: str, actual: object, expected: object = True) -> None:
        """Says what was checked.

        Raises:
            NotAsExpectedError: it is not so.
        """
        if actual != expected:
            raise NotAsExpectedError(f"{what}: {expected!r} expected, {actual!r} found")
        self.checks += 1
        sys.stdout.write(f"  ok: {what}\n")
        sys.stdout.flush()

    def snaprebuild(
        self,
        *arguments: object,
        exit_code: int,
        facts: tuple[str, ...] = (),
        document: Path | None = None,
        answer_only: bool = False,
    ) -> str:
        """Runs the command of this project, and shows what it prints: of stderr the first lines, and only if it found anything.

        Args:
            arguments: of the command; paths are shown from ``work`` on.
            exit_code: that it must end with.
            facts: regular expressions that must be found in its standard output.
            document: file that gets its JSON document; not shown.
            answer_only: show the answer alone, without tables and findings.

        Returns:
            Its standard output.

        Raises:
            NotAsExpectedError: another exit code, or a fact is not there.
        """
        assert not [fact for fact in facts if ONLY_FOR_MANY.search(fact)], f"write `snapshots?`: there may be one: {facts}"
        self._show_command(arguments)
        saved = () if document is None else ("--save-json", document)
        command = self._command(*arguments, *saved)
        done = subprocess.run(command, cwd=self.work, env=self._environment(), capture_output=True, text=True, check=False)
        self.show(_answer_of(done.stdout) if answer_only else done.stdout)
        if done.returncode != 0 and not answer_only:
            self._show_errors(done.stderr)
        if done.returncode != exit_code:
            raise NotAsExpectedError(f"exit code {exit_code} expected, {done.returncode} found: {done.stdout}{done.stderr}")
        for fact in facts:
            if not re.search(fact, done.stdout):
                raise NotAsExpectedError(f"nothing printed matches {fact!r}: {done.stdout}{done.stderr}")
        self.checks += 1 + len(facts)
        sys.stdout.write(f"  ok: exit code {exit_code}{''.join(f'; {fact}' for fact in facts)}\n")
        return done.stdout

    def begin(self, *arguments: object, shown: Sequence[object]) -> subprocess.Popen[bytes]:
        """Starts the command of this project, and does not wait for it: ``shown`` are the arguments that are shown."""
        self._show_command(shown)
        return subprocess.Popen(
            self._command(*arguments),
            cwd=self.work,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _show_command(self, arguments: Sequence[object]) -> None:
        self.show(f"$ snaprebuild {' '.join(self._words(arguments))}")

    def _words(self, arguments: Sequence[object]) -> list[str]:
        return [str(each.relative_to(self.work) if isinstance(each, Path) else each) for each in arguments]

    def _command(self, *arguments: object) -> list[str]:
        return [sys.executable, "-X", "snaprebuild_program=snaprebuild", "-m", "snaprebuild", *self._words(arguments)]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "XDG_STATE_HOME": str(self.work / "state"), "COLUMNS": "200"}

    def _show_errors(self, text: str) -> None:
        """Findings and errors. They are long lines, which are wrapped as a terminal does."""
        lines = [line for line in text.splitlines() if line.strip()]
        for line in lines[:ERRORS_SHOWN]:
            self.show(textwrap.fill(line, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
        if len(lines) > ERRORS_SHOWN:
            self.show(f"... and {pluralize(len(lines) - ERRORS_SHOWN, 'line')} more on stderr")

    def end(self, figures: dict[str, object]) -> None:
        """The last words."""
        sys.stdout.write("\n== Result\n")
        width = max(len(name) for name in figures)
        for name, value in figures.items():
            sys.stdout.write(f"{name.ljust(width)}  {value}\n")
        took = time.monotonic() - self._began
        sys.stdout.write(f"\n{self._steps} steps, {self.checks} checks, each as expected, {took:.0f} s\n")


def parser_of(program: str, description: str | None) -> argparse.ArgumentParser:
    """The options of every demonstration: ``--quiet`` and ``--keep``."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("-q", "--quiet", action="store_true", help="the steps and checks alone, without what commands print")
    help_text = "a new directory: work there, and leave everything; default: a temporary directory"
    parser.add_argument("--keep", type=_new_directory, metavar="DIR", help=help_text)
    return parser


def _new_directory(text: str) -> Path:
    if os.path.lexists(text):
        raise argparse.ArgumentTypeError(f"{text} exists: name a new directory")
    return Path(text)


@contextmanager
def demonstration(options: argparse.Namespace, name: str) -> Iterator[Transcript]:
    """A transcript and its directory, which is removed at the end without ``--keep``.

    Raises:
        SystemExit: with exit code 1 at the first step that differs, after its error was printed. SIGTERM ends what was started.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix=f"{name}-")).resolve() if options.keep is None else options.keep.resolve()
    work.mkdir(parents=True, exist_ok=options.keep is None)
    try:
        yield Transcript(work, quiet=options.quiet)
    except (NotAsExpectedError, AssertionError, subprocess.TimeoutExpired) as error:
        sys.exit(f"{name}: {str(error).replace(f'{work}/', '')}")
    finally:
        if options.keep is None:
            shutil.rmtree(work, ignore_errors=True)


def _answer_of(text: str) -> str:
    """The first lines of what a command prints, and a sign that more follows."""
    answer, _, rest = text.partition("\n\n")
    return f"{answer}\n..." if rest.strip() else answer
