"""The first step of every verb: it checks its output files, and prepares the log and the standard streams."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Mapping

from snaprebuild.cli.loading import end_loading
from snaprebuild.errors import UsageError
from snaprebuild.storage.local.document_file import check_document, check_place
from snaprebuild.storage.store import is_object

__all__ = ["begin_verb", "check_file_path"]


def begin_verb(
    verbose: int,
    documents: Mapping[str, str | None],
    new_files: Mapping[str, str | None],
    read: Mapping[str, str | list[str] | None],
    *,
    works_without_files: bool,
) -> None:
    """Begins a verb: decisions (-v) and details (-vv) go to stderr, and each file that it writes at its end can be written.

    Checked before the work, which may take hours: a later refusal would lose the result.

    Args:
        verbose: count of -v.
        documents: paths of files that replace an older one, by their options; None for those that are not wanted.
        new_files: paths of files that replace none, by their options; None for those that are not wanted.
        read: files of ours that are read, None for those that are not given: they must not be written over.
        works_without_files: the work is more important than these files: only places where they must not be are refused.

    Raises:
        UsageError: there is no such directory, or two options name one file.
        RefusedError: a file may not be written there (``check_document``).
        WriteFailedError: it could not be written.
    """
    end_loading()
    inputs = ((name, [value] if isinstance(value, str) else value or []) for name, value in read.items())
    users = {os.path.realpath(path): f"the {name}" for name, paths in inputs for path in paths}
    for option, path in (*documents.items(), *new_files.items()):
        if path is None:
            continue
        check_file_path(option, path)
        other = users.setdefault(os.path.realpath(path), option)
        if other != option:
            raise UsageError(f"{other} and {option} name one file, {path}")
        if works_without_files:
            check_place(path)
        else:
            check_document(path, replaces=option in documents)
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(level=level, stream=sys.stderr, format="%(levelname).1s %(message)s")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Names of files need be no text, and a terminal need not know every character.
            stream.reconfigure(errors="backslashreplace")


def check_file_path(option: str, path: str) -> None:
    """Makes sure that a file can be created at a path.

    Args:
        option: that gives the path.
        path: as it was typed.

    Raises:
        UsageError: it is empty, a directory or an object, or its directory does not exist.
    """
    if not path or os.path.isdir(path):
        raise UsageError(f"{option}: expected a file, found {f'the directory {path}' if path else 'an empty path'}")
    if is_object(path):
        raise UsageError(f"{option}: expected a file of this machine, found an object: {path}")
    if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise UsageError(f"{option}: the directory of {path} does not exist")
