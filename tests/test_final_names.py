"""Every command, option, code of a finding and field of a document that was renamed exists with its new name."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest
import typer
from manifests import REPOSITORY

from snaprebuild.cli.main import app
from snaprebuild.cli.verb_command import VerbCommand

NAMES = json.loads((REPOSITORY / "tests" / "final_names.json").read_text())


def schema_of(name: str) -> dict[str, Any]:
    schema = json.loads((REPOSITORY / "docs" / "schema" / f"{name}.schema.json").read_text())
    assert isinstance(schema, dict)
    return schema


def fields_of(schema: dict[str, Any]) -> set[str]:
    """All fields of a schema: ``partitions[].boundaries[].offset``; ``*`` for any name."""

    def walk(value: dict[str, Any], path: str) -> Iterator[str]:
        while "$ref" in value:
            value = schema["$defs"][value["$ref"].rpartition("/")[2]]
        for each in (*value.get("anyOf", ()), *value.get("oneOf", ())):
            yield from walk(each, path)
        members = dict(value.get("properties", {}))
        if isinstance(value.get("additionalProperties"), dict):
            names = value.get("propertyNames", {}).get("enum", ["*"])
            members |= dict.fromkeys(names, value["additionalProperties"])
        for name, each in members.items():
            yield f"{path}.{name}".lstrip(".")
            yield from walk(each, f"{path}.{name}".lstrip("."))
        if isinstance(value.get("items"), dict):
            yield from walk(value["items"], f"{path}[]")

    return set(walk(schema, ""))


@pytest.mark.parametrize("name", NAMES["documents"])
def test_every_field_has_its_new_name(name: str) -> None:
    document = NAMES["documents"][name]
    schema = schema_of(name)
    assert schema["properties"]["schema"] == {"const": document["new"]}
    assert set(document["fields"].values()) - fields_of(schema) == set()


def test_every_document_of_a_new_version_is_in_the_table() -> None:
    """Version 1 has the old names."""
    for path in (REPOSITORY / "docs" / "schema").iterdir():
        name = path.name.removesuffix(".schema.json")
        schema_id = schema_of(name).get("properties", {}).get("schema", {}).get("const", "/1")
        assert schema_id.endswith("/1") or name in NAMES["documents"], f"tests/final_names.json has no fields of {name}"


def commands() -> dict[str, click.Command]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    found: dict[str, click.Command] = {"": root}
    for name in root.list_commands(click.Context(root)):
        command = root.get_command(click.Context(root), name)
        assert command is not None
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {each}": command.commands[each] for each in command.list_commands(click.Context(command))}
    return found


def test_every_command_and_option_has_its_new_name() -> None:
    known = commands()
    assert set(NAMES["verbs"].values()) <= set(known)
    for new in NAMES["options"].values():
        if named := re.fullmatch(r"(.+) --(set|assume) (\w+)", new):
            command = known[named[1]]
            assert isinstance(command, VerbCommand)
            assert named[3] in (command.settings if named[2] == "set" else command.assumptions), new
            continue
        verb, _, option = new.rpartition(" ")
        if not option.startswith("-"):
            assert new in known
            continue
        names = {each for parameter in known[verb].params for each in (*parameter.opts, *parameter.secondary_opts)}
        assert option in names, new


def test_every_code_is_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "findings.md").read_text()
    assert set(NAMES["findings"].values()) <= set(re.findall(r"`([a-z0-9-]+)`", page))


def test_the_page_is_not_stale() -> None:
    script = REPOSITORY / "scripts" / "names_page.py"
    assert subprocess.run([sys.executable, str(script), "--check"], check=False).returncode == 0, "run scripts/names_page.py"
