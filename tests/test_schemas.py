"""The schemas of the JSON documents are those of the structs, and programs read what they have."""

import ast
import json
from pathlib import Path

import pytest
import schemas
from manifests import REPOSITORY
from schema_validator import Draft202012Validator


@pytest.mark.parametrize("document", schemas.documents(), ids=lambda document: document.NAME)
def test_no_schema_is_stale(document: type[schemas.Document]) -> None:
    path, text = schemas.file_of(document)
    assert path.read_text() == text, "run scripts/docs/build schemas"


@pytest.mark.full
@pytest.mark.parametrize("document", schemas.documents(), ids=lambda document: document.NAME)
def test_each_is_a_schema(document: type[schemas.Document]) -> None:
    Draft202012Validator.check_schema(json.loads(schemas.file_of(document)[0].read_text()))


@pytest.mark.parametrize("file", schemas.LINE_FILES, ids=lambda file: file.name)
def test_no_schema_of_lines_is_stale(file: schemas.LineFile) -> None:
    path, text = schemas.line_file(file)
    assert path.read_text() == text, "run scripts/docs/build schemas"
    Draft202012Validator.check_schema(json.loads(text))


REQUEST_LOG = {"name", "replicaId", "request", "requestApiKeyName", "requestHeader", "response", "timestamp", "topics"}
MEMBERS_OF_KAFKA = {"live_disk": {"directory.id"}, "live_follower": REQUEST_LOG}
"""Members that these programs read from files and the request log of Kafka."""
SCHEMAS = sorted((REPOSITORY / "docs" / "schema").glob("*.schema.json"))
LIVE_RUNS = sorted((REPOSITORY / "scripts" / "kafka").glob("live_*.py"))


def member_names(schema: object) -> set[str]:
    """The members of all objects of a schema."""
    if isinstance(schema, list):
        return set().union(*map(member_names, schema))
    if not isinstance(schema, dict):
        return set()
    return set(schema.get("properties", ())).union(*map(member_names, schema.values()))


def unknown_members(program: str, name: str) -> set[str]:
    """Constant keys that a program reads, and that no document has of which it names the verb."""
    nodes = list(ast.walk(ast.parse(program)))
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    paths = [path for path in SCHEMAS if path.name.removesuffix(".schema.json").replace("-", " ") in texts]
    if not paths:
        return set()
    members = set().union(*(member_names(json.loads(path.read_text())) for path in paths))
    own = {key.value for node in nodes if isinstance(node, ast.Dict) for key in node.keys if isinstance(key, ast.Constant)}
    keys = {node.slice.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant)}
    return {key for key in keys if isinstance(key, str)} - members - own - MEMBERS_OF_KAFKA.get(name, set())


@pytest.mark.parametrize("path", LIVE_RUNS, ids=lambda path: path.stem)
def test_live_runs_read_members_that_documents_have(path: Path) -> None:
    """They need brokers, so that only a night would show it."""
    assert not unknown_members(path.read_text(), path.stem)


def test_a_member_that_was_renamed_is_unknown() -> None:
    assert unknown_members('run("fleet")["upgrade"][0]["step"]', "") == {"step"}
