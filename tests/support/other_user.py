"""Commands as a user without privileges."""

import importlib
import json
import os
import pkgutil
import traceback
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
            os.chdir("/")  # the user may not return into a checkout that is closed to others
            os.setgroups([])
            os.setresgid(USER, USER, USER)
            os.setresuid(USER, USER, USER)
            done = command.snaprebuild(*words, cwd=Path("/"))
            answer = [done.exit_code, done.stdout, done.stderr]
        except BaseException:  # the child ends here whatever happens: a copy of the test run must not go on
            answer = [None, "", traceback.format_exc()]
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as pipe:
        exit_code, stdout, stderr = json.load(pipe)
    os.waitpid(child, 0)
    assert exit_code is not None, stderr
    return command.Run(exit_code, stdout, stderr)
