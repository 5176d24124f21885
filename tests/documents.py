"""The JSON documents of the command and their schemas."""

from __future__ import annotations

import functools
import json
from typing import Any

from jsonschema import Draft202012Validator
from manifests import REPOSITORY

VERBS = ("plan", "rebuild", "verify", "undo")


@functools.cache
def validator_of(verb: str) -> Draft202012Validator:
    """The validator of a verb's documents; the schema itself is checked too."""
    schema = json.loads((REPOSITORY / "docs" / "schema" / f"{verb}.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check(document: dict[str, Any]) -> None:
    """Holds a document against the schema that it names."""
    verb = str(document["schema"]).removeprefix("snaprebuild.").split("/")[0]
    errors = [f"{error.json_path}: {error.message}" for error in validator_of(verb).iter_errors(document)]
    assert not errors, "\n".join(errors[:5])
