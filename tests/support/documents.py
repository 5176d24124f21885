"""The JSON documents of the command and their schemas."""

import functools
import json
import re
import tomllib
from collections import Counter
from typing import Any

from compiled_schema import Check, compiled
from manifests import REPOSITORY
from schema_validator import Draft202012Validator

from snaprebuild.findings import Severity


@functools.cache
def validator_of(verb: str) -> Draft202012Validator:
    """The validator of a verb's documents; tests/test_schemas.py checks the schemas themselves."""
    return Draft202012Validator(json.loads((REPOSITORY / "docs" / "schema" / f"{verb}.schema.json").read_text()))


@functools.cache
def _follows(verb: str) -> Check:
    """Checks whether a document follows the schema, without reasons."""
    return compiled(validator_of(verb).schema)


def check(document: dict[str, Any]) -> None:
    """Holds a document against the schema that it names."""
    verb = str(document["schema"]).removeprefix("snaprebuild.").split("/")[0]
    if not _follows(verb)(document):
        errors = [f"{error.json_path}: {error.message}" for error in validator_of(verb).iter_errors(document)]
        assert not errors, "\n".join(errors[:5])
    if document.get("status") in ("healthy", "waiting"):
        assert document["exit_code"] == 0, "a result with a finding is not healthy"
    for finding in document.get("findings", ()):
        assert finding["severity"] in severities().get(finding["code"], ()), f"not in the catalogue: {finding}"


@functools.cache
def severities() -> dict[str, set[str]]:
    """The severities of each code, by the catalogue; the words after a severity are its condition."""
    catalogue = tomllib.loads((REPOSITORY / "snaprebuild" / "findings_catalogue.toml").read_text())
    sections = [codes for section, codes in catalogue.items() if section != "reasons"]
    names = re.compile(rf"\b({'|'.join(each.name.lower() for each in Severity)})\b")
    condition = re.compile(r" (?:if|in|with|for|after|while|by|as) [^;]*")
    return {code: set(names.findall(condition.sub("", entry[0]))) for codes in sections for code, entry in codes.items()}


def check_lines(text: str) -> list[dict[str, Any]]:
    """The JSON lines of a dump: they follow the schema, and the last says that none is missing.

    Of each form the first ones are held against the schema and then each fiftieth.
    """
    lines = [json.loads(line) for line in text.splitlines()]
    seen: Counter[str] = Counter()
    for line in lines:
        seen[line["item"]] += 1
        if seen[line["item"]] > 200 and seen[line["item"]] % 50:
            continue
        # Against the form that it names, for "is of none of 22 forms" helps no one.
        if not _line_follows(line["item"])(line):
            errors = [f"{error.json_path}: {error.message}" for error in _line_validator(line["item"]).iter_errors(line)]
            assert not errors, f"{line}: {errors[:5]}"
    assert lines[-1]["item"] == "end"
    return lines


@functools.cache
def _line_validator(item: str) -> Draft202012Validator:
    schema = validator_of("inspect-dump").schema
    assert {"$ref": f"#/$defs/{item}"} in schema["oneOf"]
    return Draft202012Validator({"$ref": f"#/$defs/{item}", "$defs": schema["$defs"]})


@functools.cache
def _line_follows(item: str) -> Check:
    return compiled(_line_validator(item).schema)
