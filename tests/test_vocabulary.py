"""One word for one thing: names of classes, members of the JSON documents, names of imports."""

import ast
import functools
import importlib
import pkgutil
from collections import defaultdict
from collections.abc import Iterator

import msgspec.inspect as structs
from manifests import REPOSITORY
from source_files import python_files

import snaprebuild.documents
from snaprebuild.published import Document

PACKAGES = ("formats", "snaprebuild")

# ------------------------------------------------------------------------------------------------------ names of classes

SHARED_CLASSES_MAX = 15

SHARED_CLASSES: dict[str, str] = {}
"""Names of classes that several modules may have, each with the reason."""

# ---------------------------------------------------------------------------------------------------- members of documents

SHARED_MEMBERS = {
    "a": "the first side of a comparison: its directory, or its values",
    "b": "the second side of a comparison: its directory, or its values",
    "blockers": "what blocks an upload: a row for each, or their codes where a row only refers to them",
    "boundaries": "the selection of a request (all, missing), and what was selected",
    "brokers": "a row for each broker, or their node ids where a row only refers to them",
    "cause": "what made something happen, in words or one of a list",
    "directories": "a row for each directory of an election, or the ids in a record of Kafka",
    "effect": "what follows from an act, in one sentence or several",
    "features": "the levels by name as the metadata log has them, or a row for each feature that was judged",
    "files": "a row for each file, the counts of a receipt or directory, or bare paths",
    "high_watermark": "a high watermark, in documents about followers with its source",
    "log_dirs": "a row for each log directory, or their paths where nothing more is said of them",
    "losses": "a row for each loss of a scenario, or their counts by kind in a search",
    "name": "the name of what the object describes; where Kafka or we have a fixed list of names, one of it",
    "partitions": "a row for each partition, their numbers in a request, or their names where a row only refers to them",
    "producers": "a row for each producer, or their counts by kind",
    "replicas": "the node ids in a record of Kafka, or a row for each replica that was judged",
    "snapshots": "a row for each snapshot, or their comparison in one object",
    "steps": "a row for each step, or their names where they are only listed",
    "topics": "a row for each topic, or the names of a request",
    "totals": "the counts of a document, by member or by kind",
    "unproven": "what an image of the metadata does not prove, or the count of snapshots that nothing proves",
    "verdict": "the result of the rules: a word, or with its rule and offset where a replica is judged as a source",
    "voters": "the node ids of a quorum, or the paths of the metadata logs that were given",
}
"""Members that have several types, each with the reason. A count of what a list elsewhere has, or of rows for which a flag is true,
needs none."""

# --------------------------------------------------------------------------------------------------- names of imports

ALIASES = frozenset(("look", "ask", "judge", "carry_out"))
"""Names of imports that do not say what is called: import the module, or give the function a better name."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """The syntax trees of the product by path from the root."""
    paths = [path for package in PACKAGES for path in python_files(REPOSITORY / package)]
    return {path.relative_to(REPOSITORY).as_posix(): ast.parse(path.read_text()) for path in paths}


def shared_classes() -> dict[str, list[str]]:
    """Names of classes at the top of more than one module, with the modules."""
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def test_one_class_name_has_one_meaning() -> None:
    shared = shared_classes()
    unexpected = {name: paths for name, paths in shared.items() if name not in SHARED_CLASSES}
    assert not unexpected, "Let each of these names say whose it is:\n" + "\n".join(
        f"{name}: {', '.join(paths)}" for name, paths in sorted(unexpected.items())
    )
    assert len(SHARED_CLASSES) <= SHARED_CLASSES_MAX
    assert not SHARED_CLASSES.keys() - shared.keys(), "These names are unique now: remove them from SHARED_CLASSES."


def documents() -> list[type[Document]]:
    """The classes of all documents."""
    for module in pkgutil.walk_packages(snaprebuild.documents.__path__, "snaprebuild.documents."):
        importlib.import_module(module.name)
    classes = [Document]
    for each in classes:
        classes += each.__subclasses__()
    return [each for each in classes if hasattr(each, "NAME")]


def parts_of(document: type[Document]) -> Iterator[structs.StructType]:
    """The structs of a document, each once."""
    seen: set[type] = set()
    unread: list[structs.Type] = [structs.type_info(document)]
    while unread:
        match unread.pop():
            case structs.StructType() as part if part.cls not in seen:
                seen.add(part.cls)
                yield part
                unread += [field.type for field in part.fields]
            case structs.UnionType(types=types):
                unread += types
            case structs.ListType(item_type=inner) | structs.VarTupleType(item_type=inner) | structs.DictType(value_type=inner):
                unread.append(inner)
            case structs.Metadata(type=inner):
                unread.append(inner)


def form_of(member: structs.Type) -> str:
    """A type in one word or a few. What may be absent, the limits of a number and the members of an object do not count."""
    match member:
        case structs.UnionType(types=types):
            return " or ".join(sorted({form_of(each) for each in types if not isinstance(each, structs.NoneType)}))
        case structs.Metadata(extra_json_schema={"enum": _}) | structs.EnumType() | structs.LiteralType():
            return "one of some values"
        case structs.Metadata(type=inner):
            return form_of(inner)
        case structs.ListType(item_type=inner) | structs.VarTupleType(item_type=inner):
            return f"list of {form_of(inner)}"
        case structs.DictType(value_type=inner):
            return f"map of {form_of(inner)}"
        case structs.StructType():
            return "object"
    return type(member).__name__.removesuffix("Type").lower()


def is_count(form: str, forms: set[str]) -> bool:
    """A number counts what a list of its name has, or those for which the flag of its name is true."""
    return form == "int" and any(each == "bool" or each.startswith("list of ") for each in forms)


def shared_members() -> dict[str, dict[str, set[str]]]:
    """Members with several types, and the structs that have them by type."""
    members: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for document in documents():
        for part in parts_of(document):
            for field in part.fields:
                members[field.encode_name][form_of(field.type)].add(f"{part.cls.__module__}.{part.cls.__name__}")
    found = {}
    for name, places in members.items():
        forms = {form for form in places if not is_count(form, set(places))}
        if len(forms) > 1:
            found[name] = {form: places[form] for form in forms}
    return found


def test_one_member_has_one_meaning() -> None:
    shared = shared_members()
    unexpected = {name: places for name, places in shared.items() if name not in SHARED_MEMBERS}
    assert not unexpected, "One of these needs another name:\n" + "\n".join(
        f"{name}: {form} in {', '.join(sorted(parts))}"
        for name, places in sorted(unexpected.items())
        for form, parts in places.items()
    )
    assert not SHARED_MEMBERS.keys() - shared.keys(), "These members have one type now: remove them from SHARED_MEMBERS."


def test_imports_keep_names_that_say_what_is_called() -> None:
    found = [
        f"{path}:{node.lineno}: {name.asname}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        if name.asname in ALIASES
    ]
    assert not found, "\n".join(found)
