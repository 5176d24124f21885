"""The schemas of the JSON documents are those of the structs."""

import json
import sys

import pytest
from jsonschema import Draft202012Validator
from manifests import REPOSITORY

sys.path.insert(0, str(REPOSITORY / "scripts"))
import schemas

FILES = schemas.files()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_schema_is_stale(path: schemas.Path) -> None:
    assert path.read_text() == FILES[path], "run scripts/schemas"
    Draft202012Validator.check_schema(json.loads(FILES[path]))
