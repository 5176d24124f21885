"""Private members of other modules: each has a reason, exists in the installed version, and the next one is seen."""

import ast
import inspect
import multiprocessing.forkserver as forkserver
import multiprocessing.resource_tracker as resource_tracker
import re
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import boto3
import botocore.httpsession
import pytest
from source_files import python_files

from snaprebuild.storage.s3.answers import check_answers

ROOT = Path(__file__).parent.parent

OF_OTHERS = {
    "_forkserver": "the fork server has no public process id",
    "_forkserver_pid": "the fork server has no public process id",
    "_forkserver_alive_fd": "a worker must close the pipe that keeps the fork server alive",
    "_resource_tracker": "its memory is limited by process id",
    "_pid": "its memory is limited by process id",
    "_executor_manager_thread": "an executor does not report that its thread has ended",
    "_endpoint": "the SDK has no limit for the bytes and the time of an answer",
    "_pool_classes_by_scheme": "the SDK has no limit for the bytes and the time of an answer",
    "_parsereport": "how a class of construct calls another one: the public method loses the path of an error",
    "_plan": "a plan goes from a result of the library to the call that carries it out, and is no public value",
    "_command": "the command line goes the same way",
}
"""Private members of the standard library, of packages and of results that other modules read or replace, each for a reason."""

PRIVATE = re.compile(r"(?<!\bself)(?<!\bcls)\._[a-z]|getattr\([^\n]*\"_")
"""In a text with a private member of any kind."""

PUBLIC = {"_exit", "_asdict", "_replace", "_fields"}
"""Documented names that begin with an underscore."""


def _is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def _foreign_members(tree: ast.Module) -> dict[str, int]:
    """Private attributes of values other than ``self`` that no class of the module defines, with a line of each."""
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr.startswith("_")]
    own |= {node.attr for node in attributes if _is_own(node.value) and isinstance(node.ctx, ast.Store)}
    by_name = [
        node.args[1]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "setattr")
        and len(node.args) > 1
    ]
    named = [(node.value, node.lineno) for node in by_name if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    named += [(node.attr, node.lineno) for node in attributes if not _is_own(node.value)]
    return {name: line for name, line in named if name.startswith("_") and not name.endswith("__") and name not in own | PUBLIC}


@pytest.mark.full
def test_no_other_private_member_is_used() -> None:
    found = {
        (name, f"{path.relative_to(ROOT)}:{line}")
        for package in ("formats", "snaprebuild")
        for path in python_files(ROOT / package)
        if PRIVATE.search(text := path.read_text())
        for name, line in _foreign_members(ast.parse(text)).items()
    }
    assert not sorted(place for name, place in found if name not in OF_OTHERS), "use a public way, or say why there is none"
    assert {name for name, _ in found} == OF_OTHERS.keys(), "they are not used any more"


def test_a_private_member_of_another_module_is_seen() -> None:
    tree = ast.parse(
        'class A:\n  def f(self, other):\n    self._mine = other._mine\n    return other._theirs, self._gone, getattr(other, "_named")\n'
    )
    assert _foreign_members(tree) == {"_theirs": 4, "_named": 4}


def _executor() -> object:
    with ProcessPoolExecutor(1) as executor:
        return executor


MEMBERS: dict[str, tuple[Callable[[], object], ...]] = {
    "_forkserver_pid": (lambda: forkserver._forkserver,),  # type: ignore[attr-defined]
    "_forkserver_alive_fd": (lambda: forkserver._forkserver,),  # type: ignore[attr-defined]
    "_pid": (lambda: resource_tracker._resource_tracker,),
    "_executor_manager_thread": (_executor,),
    "_pool_classes_by_scheme": (botocore.httpsession.URLLib3Session,),
}
"""Where each member is, in the standard library and the SDK."""


@pytest.mark.parametrize("name", MEMBERS)
def test_the_member_still_exists(name: str) -> None:
    for value in MEMBERS[name]:
        assert hasattr(value(), name)


def test_a_client_of_the_sdk_is_called_where_its_answers_are_checked() -> None:
    client = boto3.session.Session().client("s3", region_name="x", aws_access_key_id="x", aws_secret_access_key="x")
    assert client._endpoint.http_session.send
    check_answers(client)
    methods = {getattr(client, name).__qualname__ for name in client.meta.method_to_api_mapping}
    assert methods == {"_checked.<locals>.checked"}
    assert "getattr(self, operation_name)" in inspect.getsource(type(client).get_paginator)
