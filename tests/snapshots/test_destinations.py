"""Where snapshots go is one value: which request makes it, what it refuses, and that nothing else reads its options."""

import ast
from pathlib import Path

import pytest
from msgspec.structs import replace

from snaprebuild.errors import UsageError
from snaprebuild.snapshots.destination.destinations import Below, Destination, InPlace, NextToBroker, Staged
from snaprebuild.snapshots.plan.plan_request import RebuildRequest

ROOT = Path(__file__).resolve().parents[2]
PATHS = ("/logs",)

OPTIONS = {"out", "stage", "broker_running"}

READS_OPTIONS = {
    "snaprebuild/snapshots/plan/plan_model.py": "makes the destination of them",
    "snaprebuild/snapshots/ensure_snapshot.py": "its request is of one boundary, which goes to one directory or nowhere",
    "snaprebuild/hooks.py": "the same request",
}
"""Modules that may read these fields of a request, and why."""


def request(**options: object) -> RebuildRequest:
    return RebuildRequest(PATHS, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "destination"),
    [
        ({}, InPlace()),
        ({"broker_running": True}, NextToBroker()),
        ({"out": "/out"}, Below("/out")),
        ({"out": "s3://bucket/out"}, Below("s3://bucket/out")),
        ({"stage": ("/one", "/other")}, Staged(("/one", "/other"))),
        ({"set_aside": True, "boundaries": "all"}, InPlace()),
        ({"out": "/out", "boundaries": "all", "drop_expired": True}, Below("/out")),
        ({"broker_running": True, "drop_expired": True, "allow_unproven": True}, NextToBroker()),
        ({"stage": ("/one",), "allow_unproven": True, "accept_topic_id_zero": True}, Staged(("/one",))),
    ],
)
def test_a_request_has_one_destination(options: dict[str, object], destination: Destination) -> None:
    assert request(**options).checked().destination == destination


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"out": ""}, "a path is empty"),
        ({"stage": ("",)}, "--to: the path is empty"),
        ({"stage": ("/one",), "broker_running": True}, "use only one of them"),
        ({"stage": ("/one",), "out": "/out"}, "--to and --out name different places"),
        ({"broker_running": True, "out": "/out"}, "--broker-running and --out name different places"),
        ({"out": "/out", "set_aside": True}, "--set-aside renames files in the log directories"),
        ({"stage": ("/one",), "set_aside": True}, "--set-aside needs a broker that is stopped: not with --to"),
        ({"broker_running": True, "set_aside": True}, "--set-aside needs a broker that is stopped: not with --broker-running"),
        ({"stage": ("/one",), "boundaries": "all"}, "--to is for snapshots that are missing: not with --boundaries all"),
        ({"broker_running": True, "boundaries": "all"}, "--broker-running is for snapshots that are missing"),
        ({"stage": ("/one",), "drop_expired": True}, "no entry may be dropped"),
        ({"stage": ("s3://bucket/one",)}, "--to: no broker runs on an object store"),
        ({"paths": ("s3://bucket",), "broker_running": True}, "--broker-running: no broker runs on an object store"),
        ({"paths": ("s3://bucket",), "set_aside": True}, "objects are never renamed or removed"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        replace(RebuildRequest(PATHS), **options).checked()
    assert message in str(refused.value)


def test_what_the_destinations_say_fits_together() -> None:
    for each in (InPlace(), NextToBroker(), Below("/out"), Staged(("/one",))):
        assert each.is_for_broker == (each.writes_into_log_dirs or each.installed_later)
        assert each.locks_log_dirs == (each.writes_into_log_dirs and not each.while_broker_runs)
        assert bool(each.directories) != each.writes_into_log_dirs


def options_read(tree: ast.AST) -> set[str]:
    """The options of a destination that code reads from a request; ``asked.request.out`` too."""
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in OPTIONS
        and isinstance(node.ctx, ast.Load)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")).endswith("request")
    }


def may_ask(code: str) -> bool:
    """Without these words it does not; to parse all of the code takes a second."""
    return "request" in code and any(f".{option}" in code for option in OPTIONS)


def test_nothing_else_asks_for_the_options() -> None:
    assert options_read(ast.parse("if self._request.stage or plan.request.out: request.broker_running")) == OPTIONS
    assert options_read(ast.parse("request.destination.directories; options.out; plan.stage")) == set()
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "snaprebuild").rglob("*.py")
        if may_ask(path.read_text()) and options_read(ast.parse(path.read_text()))
    }
    assert found <= set(READS_OPTIONS), "ask request.destination"
