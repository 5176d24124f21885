"""The schemas in docs/schema: of the JSON documents, from the structs of `snaprebuild.documents`, and of files of JSON lines."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import pkgutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import snaprebuild.documents
from snaprebuild.documents.envelope import FirstMembers, LastMembers
from snaprebuild.published import Document
from snaprebuild.tier.ledger.ledger_file import CopyLine, LedgerHeader, RangeLine, RoundLine, SegmentLine, SyncLine

ROOT = Path(__file__).resolve().parents[2]
DIRECTORY = ROOT / "docs" / "schema"


def documents() -> list[type[Document]]:
    """The struct of each document, by name."""
    structs: dict[str, type[Document]] = {}
    for module in pkgutil.iter_modules(snaprebuild.documents.__path__, "snaprebuild.documents."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and issubclass(each, Document) and "NAME" in vars(each):
                structs[each.NAME] = each
    return [structs[name] for name in sorted(structs)]


@functools.cache
def definitions_of(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by name; `inspect.getsource` would parse the module again for each of them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


@functools.cache
def field_texts(kind: type) -> dict[str, str]:
    """The docstrings of the fields of a struct, also of those that it inherits."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("snaprebuild."):
            definition = definitions_of(base.__module__)[base.__name__]
            for field, text in zip(definition.body, definition.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                        texts[name] = inspect.cleandoc(said).replace("\n", " ")
    return texts


def schema_of(document: type[Document]) -> dict[str, Any]:
    """The schema of a document, with the head and the tail that all have."""
    kinds = (FirstMembers, document, LastMembers)
    _, components = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    structs = structs_of(kinds)
    definitions = {name: strict(schema, structs.get(name, object)) for name, schema in components.items()}
    parts = [definitions.pop(kind.__name__) for kind in kinds]
    properties = {name: schema for part in parts for name, schema in part["properties"].items()}
    properties["schema"] = {"const": document.schema_id()}
    optional = {name for part in parts for name in set(part["properties"]) - set(part["required"])}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{document.NAME}.schema.json",
        "title": document.schema_id(),
        "description": inspect.getdoc(document),
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def structs_of(kinds: tuple[type, ...]) -> dict[str, type]:
    """All structs inside these, by name."""
    structs: dict[str, type] = {}

    def walk(value: Any) -> None:
        if isinstance(value, msgspec.inspect.StructType | msgspec.inspect.DataclassType):
            if value.cls.__name__ not in structs:
                structs[value.cls.__name__] = value.cls
                for field in value.fields:
                    walk(field.type)
        elif isinstance(value, msgspec.inspect.Type):
            for name in value.__struct_fields__:
                inner = getattr(value, name)
                for each in inner if isinstance(inner, tuple) else (inner,):
                    walk(each)

    for kind in kinds:
        walk(msgspec.inspect.type_info(kind))
    return structs


def strict(schema: dict[str, Any], kind: type) -> dict[str, Any]:
    """The schema of an object without titles and defaults: it has no other member, and all that may not be absent are required."""
    if "properties" not in schema:
        return without(schema)
    texts = field_texts(kind)
    names = {name: name for name in schema["properties"]}
    may_be_absent = set[str]()
    if issubclass(kind, msgspec.Struct):
        names |= dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
        may_be_absent = {field.encode_name for field in msgspec.structs.fields(kind) if field.default is msgspec.UNSET}
    properties = {}
    for name, each in schema["properties"].items():
        plain = without(each)
        properties[name] = {**plain, "description": texts[names[name]]} if names[name] in texts else plain
    strict_schema = {"type": "object", "description": (inspect.getdoc(kind) or "").split("\n\n")[0], "properties": properties}
    return strict_schema | {"required": [name for name in properties if name not in may_be_absent], "additionalProperties": False}


def without(value: Any) -> Any:
    """Without defaults, and without patterns that are in the syntax of Python: JSON schemas have another one.

    Releases of msgspec before 0.23 give a docstring with its indentation, so that descriptions are cleaned here.
    """
    if isinstance(value, list):
        return [without(each) for each in value]
    if not isinstance(value, dict):
        return value
    dropped = {"default", "title"} if "enum" in value else {"default"}
    if str(value.get("pattern", "")).startswith(r"\A"):
        dropped.add("pattern")
    kept = {name: without(each) for name, each in value.items() if name not in dropped}
    if isinstance(description := kept.get("description"), str):
        kept["description"] = inspect.cleandoc(description)
    return kept


def file_of(document: type[Document]) -> tuple[Path, str]:
    """The path and the text of a schema."""
    return DIRECTORY / f"{document.NAME}.schema.json", json.dumps(schema_of(document), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class LineFile:
    """A file of ours that has lines of several kinds.

    Attributes:
        name: of its schema.
        title: of its schema.
        lines: the struct of each kind of line.
    """

    name: str
    title: str
    lines: tuple[type[msgspec.Struct], ...]


LINE_FILES = (
    LineFile(
        "audit-ledger",
        "A line of the ledger that `snaprebuild tier audit --ledger` keeps (JSON lines)",
        (LedgerHeader, RoundLine, SegmentLine, RangeLine, CopyLine, SyncLine),
    ),
)


def schema_of_lines(file: LineFile) -> dict[str, Any]:
    """The schema of each line of a file."""
    references, components = msgspec.json.schema_components(file.lines, ref_template="#/$defs/{name}")
    structs = structs_of(file.lines)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"{file.name}.schema.json",
        "title": file.title,
        "oneOf": list(references),
        "$defs": {name: strict(schema, structs.get(name, object)) for name, schema in components.items()},
    }


def line_file(file: LineFile) -> tuple[Path, str]:
    """The path and the text of the schema of a file with lines of several kinds."""
    return DIRECTORY / f"{file.name}.schema.json", json.dumps(schema_of_lines(file), indent=2, ensure_ascii=False) + "\n"


def texts() -> dict[Path, str]:
    """The text of each schema by its path."""
    return dict([*(file_of(each) for each in documents()), *(line_file(each) for each in LINE_FILES)])
