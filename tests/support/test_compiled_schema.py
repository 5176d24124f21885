"""Answers of `compiled_schema` equal those of jsonschema: for each part of each schema, and for documents with one change."""

import copy
import functools
import json
from collections.abc import Iterator
from typing import Any

import pytest
from command import in_json
from compiled_schema import compiled
from documents import validator_of
from manifests import FIXTURES, REPOSITORY
from schema_validator import Draft202012Validator

SCHEMAS = sorted((REPOSITORY / "docs" / "schema").glob("*.schema.json"))
NESTED = ("properties", "$defs", "items", "additionalProperties", "anyOf", "oneOf", "propertyNames", "$ref")
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.0, 1.5, 2**31, 2**63 - 1, 2**63, -(2**63)),
    *("", "x", "7", "2026-11-21T12:00:00Z", "0" * 64, "AAAAAAAAAAAAAAAAAAAAAQ", "EXACT", "3.9.2"),
    *([], [1], ["x"], {}, {"x": 1}, {"schema": "x"}),
)


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and all that is inside of it."""
    if isinstance(schema, list):
        for each in schema:
            yield from parts(each)
    elif isinstance(schema, dict):
        yield schema
        for each in schema.values():
            yield from parts(each)


@functools.cache
def plain_parts() -> list[str]:
    """All parts of all schemas without those inside of them, each once: types, limits, patterns, names."""
    found = {
        json.dumps({keyword: value for keyword, value in part.items() if keyword not in NESTED}, sort_keys=True)
        for path in SCHEMAS
        for part in parts(json.loads(path.read_text()))
        if "type" in part and isinstance(part["type"], str | list)
    }
    return sorted(found)


def test_each_part_of_each_schema() -> None:
    differing = []
    taken = 0
    for text in plain_parts():
        schema = {keyword: value for keyword, value in json.loads(text).items() if keyword not in ("description", "title")}
        follows, validator = compiled(schema), Draft202012Validator(schema)
        for value in (*VALUES, *schema.get("enum", ())):
            is_valid = validator.is_valid(value)
            taken += is_valid
            if follows(value) != is_valid:
                differing.append((schema, value))
    assert differing == []
    assert taken > 100


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]},
        {"oneOf": [{"type": "integer"}, {"type": "number"}]},
        {"const": 1},
        {"const": True},
        {"enum": ["x", 1, None]},
        {"items": {"type": "integer"}, "minItems": 1, "maxItems": 1},
        {"properties": {"x": {"type": "integer"}}, "additionalProperties": False},
        {"properties": {"schema": {"const": "x"}}, "additionalProperties": {"type": "string"}},
        {"additionalProperties": {"type": "string"}, "propertyNames": {"pattern": "^s"}},
        {"required": ["x"], "type": "object"},
        {"$defs": {"x": {"items": {"$ref": "#/$defs/x"}, "type": "array"}}, "$ref": "#/$defs/x"},
    ],
    ids=", ".join,
)
def test_what_is_made_of_parts(schema: dict[str, Any]) -> None:
    follows, validator = compiled(schema), Draft202012Validator(schema)
    assert [follows(value) for value in VALUES] == [validator.is_valid(value) for value in VALUES]


def test_every_schema_is_compiled() -> None:
    for path in SCHEMAS:
        compiled(json.loads(path.read_text()))
    with pytest.raises(NotImplementedError, match="not compiled: \\['uniqueItems'\\]"):
        compiled({"uniqueItems": True})


def changed(document: Any) -> Iterator[Any]:
    """The document with one change in each place: another value, one member less, one more."""
    places: list[tuple[str | int, ...]] = [()]
    for place in places:
        here = functools.reduce(lambda value, key: value[key], place, document)
        keys = list(here) if isinstance(here, dict) else [0] if isinstance(here, list) and here else []
        places += [(*place, key) for key in keys]
        if place:
            others: tuple[Any, ...] = (None, -1, "x", [], {})
            yield from (_with(document, place, value) for value in others)
        if isinstance(here, dict):
            yield _with(document, (*place, "other"), 1)
    for place in places[1:]:
        if isinstance(place[-1], str):
            without = copy.deepcopy(document)
            del functools.reduce(lambda value, key: value[key], place[:-1], without)[place[-1]]
            yield without


def _with(document: Any, place: tuple[str | int, ...], value: Any) -> Any:
    found = copy.deepcopy(document)
    functools.reduce(lambda inside, key: inside[key], place[:-1], found)[place[-1]] = value
    return found


@pytest.mark.full
@pytest.mark.parametrize("verb", ["scan", "plan", "verify"])
def test_a_document_with_one_change(verb: str) -> None:
    document = in_json(verb, FIXTURES / "kafka4-mixed" / "logs").document
    document |= {name: value[:1] for name, value in document.items() if isinstance(value, list)}
    validator = validator_of(verb)
    follows = compiled(validator.schema)
    found = [(follows(each), validator.is_valid(each)) for each in changed(document)]
    assert all(ours == theirs for ours, theirs in found)
    assert {theirs for _, theirs in found} == {True, False}
