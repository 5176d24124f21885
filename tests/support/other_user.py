"""Commands as a user without privileges."""

import importlib
import json
import os
import pkgutil
from pathlib import Path

import command

import snaprebuild

USER = 65534
"""Number of the user, and of its group: nobody."""


def run_as_user(*words: object) -> command.Run:
    """The command as the user, in a fork: the user may not be able to read the checkout, so everything is imported before."""
    for module in pkgutil.walk_packages(snaprebuild.__path__, "snaprebuild."):
        if not module.name.startswith(("snaprebuild.spark", "snaprebuild.__main__")):
            importlib.import_module(module.name)
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            done = command.snaprebuild(*words, cwd=Path("/"))
            os.write(writer, json.dumps([done.exit_code, done.stdout, done.stderr]).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        exit_code, stdout, stderr = json.load(answer)
    os.waitpid(child, 0)
    return command.Run(exit_code, stdout, stderr)
