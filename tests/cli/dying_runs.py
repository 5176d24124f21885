"""Runs the command again and again, each time in a fork that dies before its n-th call that changes something.

Reads lines of JSON from stdin, ``[n, arguments...]``; answers each with the exit code, -9 where it died. One process that has loaded all
once makes it cheap to kill a run at every point.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import json
import os
import pkgutil
import signal
import sys
from collections.abc import Callable
from typing import Any

from snaprebuild.cli import main, render, runs
from snaprebuild.storage.local.file_calls import FileCalls

CHANGING = ((FileCalls, ("open", "link", "rename_noreplace", "unlink")), (os, ("write", "fsync", "mkdir")))


def dying(call: Callable[..., Any], calls: itertools.count[int], last: int) -> Callable[..., Any]:
    def counted(*arguments: Any, **named: Any) -> Any:
        if next(calls) == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **named)

    return counted


def run(last: int, arguments: list[str]) -> int:
    """Runs the command in a fork."""
    process = os.fork()
    if process == 0:
        calls: itertools.count[int] = itertools.count()
        for place, names in CHANGING:
            for name in names:
                setattr(place, name, dying(getattr(place, name), calls, last))
        silent = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(silent, fd)
        sys.argv = ["snaprebuild", *arguments]
        main.main()
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


main.verbs()
for package in (runs, render):  # what each run would load
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
gc.freeze()  # each fork would look through all of it when it ends
for line in sys.stdin:
    number, *words = json.loads(line)
    print(run(number, words), flush=True)  # noqa: T201
