"""The schemas of the JSON documents are those of the structs."""

import json

import pytest
import schemas
from schema_validator import Draft202012Validator


@pytest.mark.parametrize("document", schemas.documents(), ids=lambda document: document.NAME)
def test_no_schema_is_stale(document: type[schemas.Document]) -> None:
    path, text = schemas.file_of(document)
    assert path.read_text() == text, "run scripts/docs/build schemas"


@pytest.mark.full
@pytest.mark.parametrize("document", schemas.documents(), ids=lambda document: document.NAME)
def test_each_is_a_schema(document: type[schemas.Document]) -> None:
    Draft202012Validator.check_schema(json.loads(schemas.file_of(document)[0].read_text()))
