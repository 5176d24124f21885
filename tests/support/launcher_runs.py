"""The launcher of the one file with a small tree: its command is a static program that prints how it was started."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import Run, run_process
from one_file import Tree, write_one_file
from releases import missing

SECONDS_MAX = 60
COMMAND = "bin/snaprebuild"
LIBRARY = "lib/packages/library"
LIBRARY_SIZE = 300_000
"""Bytes that do not get smaller by compression: more than a full disk of a test has left."""

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* Prints its process, what was handed on to it, and its arguments. With the verb `hold` it lives until stdin ends. */
int main(int count, char **arguments) {
  const char *launched = getenv("SNAPREBUILD_LAUNCHED");
  printf("command %d\n%s\n", getpid(), launched ? launched : "");
  for (int i = 0; i < count; i++) printf("%s\n", arguments[i]);
  fflush(stdout);
  while (count > 1 && strcmp(arguments[1], "hold") == 0 && getchar() != EOF) continue;
  return 0;
}
"""


def at(place: Path) -> dict[str, str]:
    """The variable that names a place to unpack into."""
    return {"SNAPREBUILD_CACHE_DIR": str(place)}


def small_release(work: Path, name: str, command: str = COMMAND) -> Path:
    """A one file whose tree has two files; those of two names differ in one of them."""
    why = missing()
    if why is not None:
        pytest.skip(f"NOT RUN: the launcher (marker release): {why}")
    tree = Tree(work / f"tree-{name}", "", command=command)
    for folder in ("bin", "lib/packages"):
        (tree.root / folder).mkdir(parents=True)
    source = work / "command.c"
    source.write_text(SOURCE)
    subprocess.run(["cc", "-O1", "-static", "-o", tree.root / COMMAND, source, "-s"], check=True)
    (tree.root / LIBRARY).write_bytes(library(name))
    file = work / name
    write_one_file(tree, file, work)
    return file


def library(name: str) -> bytes:
    """Contents of the file of that name in the tree."""
    return random.Random(name).randbytes(LIBRARY_SIZE)


def start(file: Path, *arguments: object, before: Sequence[object] = (), environment: dict[str, str] | None = None) -> Run:
    """Runs it with PATH and the given variables as the whole environment."""
    variables = {"PATH": os.environ["PATH"]} | (environment or {})
    return run_process(*before, file, *arguments, env=variables, timeout=SECONDS_MAX)


def trees(place: Path) -> list[str]:
    """Names of what is at a place, without records."""
    return sorted(path.name for path in place.iterdir() if path.suffix != ".used")


def is_started(run: Run) -> bool:
    """Whether the command of the tree was."""
    return run.stdout.startswith("command ")
