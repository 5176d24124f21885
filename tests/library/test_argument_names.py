"""Sentences for programs name arguments, not options: every sentence of the code that a call of the library can reach."""

import ast
import functools
import inspect
import re
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec.inspect as inspection
import pytest
from log_dirs import copy_of, remove_snapshots
from manifests import FIXTURES, REPOSITORY
from source_files import python_files

import snaprebuild as library
from snaprebuild import (
    LogDir,
    Partition,
    ReplayOptions,
    S3Settings,
    SnapshotRefusedError,
    UsageError,
    ensure_snapshot,
    validate_snapshot,
)
from snaprebuild.argument_names import COMMAND_ONLY, VERBS, with_arguments
from snaprebuild.cli.main import verbs
from snaprebuild.documents.plan import PlanDocument
from snaprebuild.documents.rebuild import Rebuild
from snaprebuild.documents.scan import Scan
from snaprebuild.documents.tier import TierAudit
from snaprebuild.documents.verify import Verify
from snaprebuild.library.verb_result import SENTENCES
from snaprebuild.spark import notebook

OPTION = re.compile(r"(?<![\w/-])--[a-z][a-z0-9-]*")
COMMAND = re.compile(r"`[^-`][^`]*`|snaprebuild (?:scan|stage) --[^;.]*")

OF_COMMANDS = (
    *("snaprebuild/argument_names.py", "snaprebuild/cli/loading.py", "snaprebuild/cli/options", "snaprebuild/cli/panels.py"),
    *("snaprebuild/cli/render/metrics.py", "snaprebuild/cli/runs", "snaprebuild/cli/verb.py", "snaprebuild/cli/verb_command.py"),
    *("snaprebuild/cli/file_kinds.py", "snaprebuild/cli/main.py", "snaprebuild/cli/verbs", "snaprebuild/library/command_line.py"),
    *("snaprebuild/inspect", "snaprebuild/tier/metadata", "snaprebuild/tier/repair", "snaprebuild/tier/upload"),
)
"""Modules that only the command loads, or whose sentences are of no function of the library."""

OTHERS = {
    "--add-modules": "an option of Java",
    "--reference": "an option of chcon",
    "--require-plan": "of `install`, which is no function of the library",
    "--set-file": "an option of setfacl",
    "--user": "an option of a container",
}


@functools.cache
def _trees() -> dict[str, ast.Module]:
    paths = [each.relative_to(REPOSITORY) for package in ("formats", "snaprebuild") for each in python_files(REPOSITORY / package)]
    return {str(path): ast.parse((REPOSITORY / path).read_text()) for path in paths}


def _imported(tree: ast.Module) -> Iterator[str]:
    """Paths of modules that a module imports, at any depth."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in (node.module, *(f"{node.module}.{each.name}" for each in node.names)):
                path = name.replace(".", "/")
                yield from (each for each in (f"{path}.py", f"{path}/__init__.py") if each in _trees())


def _reached() -> set[str]:
    """Modules that the library imports."""
    pending = [path for path in _trees() if path.startswith("snaprebuild/library/")]
    pending += ["snaprebuild/hooks.py", "snaprebuild/spark/notebook.py"]
    reached: set[str] = set()
    while pending:
        path = pending.pop()
        if path not in reached and not path.startswith(("snaprebuild/cli/verbs", "snaprebuild/cli/main.py")):
            reached.add(path)
            pending += _imported(_trees()[path])
    return reached


def _sentences(tree: ast.Module) -> Iterator[str]:
    """Texts of the code, without docstrings; a value inside of one is ``X``."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            yield node.value


def test_every_sentence_that_a_call_can_reach_has_names_of_arguments() -> None:
    reached = _reached()
    assert {"snaprebuild/snapshots/plan/plan_request.py", "snaprebuild/tier/audit/window.py"} <= reached
    assert len(reached) > 250
    left = set()
    count = 0
    for path in sorted(reached):
        if path.startswith(OF_COMMANDS):
            continue
        for sentence in _sentences(_trees()[path]):
            options = OPTION.findall(sentence)
            count += len(options)
            if options in ([], [sentence]):
                continue  # no option, or a word of a command line
            named = COMMAND.sub("", with_arguments(sentence))
            left |= {(option, path) for option in OPTION.findall(named) if option not in COMMAND_ONLY | set(OTHERS)}
    assert count > 80
    assert left == set()


PUBLIC = [getattr(library, name) for name in library.__all__ if not name.startswith("__")]
RAISES = [
    (owner.__name__ if inspect.isclass(owner) else "", member)
    for owner in PUBLIC
    if inspect.isclass(owner) or inspect.isfunction(owner)
    for member in ([owner] if inspect.isfunction(owner) else vars(owner).values())
    if "Raises:" in (inspect.getdoc(member) or "") and (inspect.isfunction(member) or hasattr(member, "func"))
]
OWN_SENTENCES = {
    "CallEngine.keep_effects": "of a protocol",
    "PreparedUpload.check_unchanged": "its errors are about files, and name no option",
    "PreparedUpload.open_log": "its errors are about files, and name no option",
    "Result.to_pandas": "its errors name packages",
}


def test_every_public_call_that_raises_names_arguments() -> None:
    plain = set()
    for owner, member in RAISES:
        function: Any = getattr(member, "func", member)
        if not hasattr(function, "__wrapped__"):
            plain.add(f"{owner}.{function.__name__}".lstrip("."))
    assert plain == set(OWN_SENTENCES)
    assert len(RAISES) > 12


MADE_BY_CALLERS = (library.LogDir, library.Partition, ReplayOptions, S3Settings)
"""The program alone makes values of the other classes."""
TAKING_ARGUMENTS = [
    *((each.__qualname__, each) for each in PUBLIC if inspect.isfunction(each)),
    *((f"spark.notebook.{name}", getattr(notebook, name)) for name in notebook.__all__),
    *(
        (member.__qualname__, member)
        for owner in PUBLIC
        if inspect.isclass(owner) and not issubclass(owner, (Exception, Enum)) and owner is not library.CallEngine
        for name, member in vars(owner).items()
        if inspect.isfunction(member) and len(inspect.signature(member).parameters) > 1
        if not name.startswith("_") or (name == "__init__" and owner in MADE_BY_CALLERS)
    ),
]
"""Public functions, methods and constructors with parameters. Callers implement ``CallEngine``, a protocol."""


@pytest.mark.parametrize("call", [call for _, call in TAKING_ARGUMENTS], ids=[name for name, _ in TAKING_ARGUMENTS])
def test_an_argument_that_does_not_exist_is_answered_with_those_that_do(call: Any) -> None:
    parameters = inspect.signature(call).parameters.values()
    with pytest.raises(TypeError) as error:
        call(*(None for each in parameters if each.name == "self"), as_off=1)
    for each in parameters:
        if each.kind is not each.VAR_KEYWORD and each.name != "self":
            assert re.search(rf"[ ']{each.name}\b", str(error.value)), error.value
    assert str(error.value).startswith(f"{call.__qualname__.removesuffix('.__init__')}: there is no argument 'as_off'")


@pytest.mark.parametrize(
    ("call", "name", "meant"),
    [
        (library.verify, "as_of", "as_of_ms"),
        (library.verify, "topic", "topics"),
        (library.rebuild, "crc", "check_crc"),
        (library.scan, "impct", "impact"),
        (notebook.verify, "as_of", "as_of_ms"),
        (S3Settings, "endpoint", "endpoint_url"),
        (ReplayOptions, "as_of", "as_of_ms"),
    ],
)
def test_the_name_of_an_option_is_answered_with_its_argument(call: Any, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"; did you mean '{meant}'\? It takes "):
        call(**{name: 1})


def test_an_argument_that_resembles_none_is_answered_with_all() -> None:
    with pytest.raises(TypeError, match=r"^scan: there is no argument 'zzz'\. It takes source, server_properties, topics, "):
        library.scan(zzz=1)  # type: ignore[call-arg]
    assert "as_of_ms" not in inspect.signature(library.scan).parameters
    with pytest.raises(TypeError, match=r"argument .as_of.\. It takes"):
        library.scan(as_of=1)  # type: ignore[call-arg]  # `scan` has no such argument to propose


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("--out leads into the log directory /a", "out leads into the log directory /a"),
        ("verify with the same --as-of, or `verify --as-of 5`", "verify with the same as_of_ms, or `verify --as-of 5`"),
        ("no topic odrers; did you mean `--topic orders`?", "no topic odrers; did you mean `topics orders`?"),
        ("needs --set private_key=FILE", "needs private_key=FILE"),
        ("/data/x--plan-0 and a--out-1 are gone", "/data/x--plan-0 and a--out-1 are gone"),
        ("Use --i-am-the-leader if it leads", "Use --i-am-the-leader of the command if it leads"),
        ("... and 3 more (--output json lists them)", "... and 3 more (the document lists them)"),
        ("Next: snaprebuild rebuild --set-aside --out x", "Next: snaprebuild rebuild --set-aside --out x"),
        ("snaprebuild wrote it with another --as-of", "snaprebuild wrote it with another as_of_ms"),
        ("another snaprebuild plans with --out", "another snaprebuild plans with out"),
        (
            "Run snaprebuild verify /a.b --as-of 5. Use the same --as-of",
            "Run snaprebuild verify /a.b --as-of 5. Use the same as_of_ms",
        ),
        ("run snaprebuild stage --plan FILE; --out is of another", "run snaprebuild stage --plan FILE; out is of another"),
        ("(as snaprebuild tier audit --jobs 2) with --jobs", "(as snaprebuild tier audit --jobs 2) with jobs"),
        ("snaprebuild plan --out 'a. b' --jobs 2: --out leads there", "snaprebuild plan --out 'a. b' --jobs 2: out leads there"),
        ("snaprebuild rebuild ... --out x", "snaprebuild rebuild ... --out x"),
    ],
)
def test_a_sentence_with_arguments(sentence: str, expected: str) -> None:
    assert with_arguments(sentence) == expected
    assert with_arguments(expected) == expected


NO_SENTENCES = {
    *("cluster_id", "cluster_ids", "directory_id", "etag", "host", "kafka_release", "topic_id"),
    *("command", "exception", "inter_broker_protocol_version", "log_line", "name", "setting", "thrown_in"),
    *("index_without_segment", "irregular", "location", "log_dir", "misnamed", "path", "paths", "receipt", "server_properties"),
    *("set_aside_name", "staged_plan", "subject", "target", "temporary", "topic", "topic_partition", "topic_partitions", "topics"),
    *("endpoint_url", "profile", "releases", "sse_c_key_file", "versions"),
}
"""Members with names, paths, the command line itself, or words and versions of Kafka."""


def _texts(kind: inspection.Type, member: str) -> Iterator[str]:
    """Members of a type whose values are any text; ``member`` is the name of the one that has the type."""
    match kind:
        case inspection.Metadata():  # of one of several words
            return
        case inspection.StrType(pattern=None):
            yield member
        case inspection.StructType() | inspection.DataclassType():
            for field in kind.fields:
                yield from _texts(field.type, field.name)
        case inspection.UnionType():
            for each in kind.types:
                yield from _texts(each, member)
        case inspection.ListType() | inspection.VarTupleType():
            yield from _texts(kind.item_type, member)
        case inspection.TupleType():
            for each in kind.item_types:
                yield from _texts(each, member)
        case inspection.DictType():
            yield from _texts(kind.value_type, member)


DOCUMENTS = (PlanDocument, Rebuild, Scan, TierAudit, Verify)


def test_every_text_of_the_documents_is_known_to_be_a_sentence_or_none() -> None:
    """A member that is new is noticed here: ``Result.document`` names arguments in its sentences."""
    texts = {name for document in DOCUMENTS for name in _texts(inspection.type_info(document), "")}
    assert texts - NO_SENTENCES == SENTENCES
    assert texts >= NO_SENTENCES
    assert not SENTENCES & NO_SENTENCES
    assert {"fault", "message", "reason", "reasons", "remedy", "replay_reason"} <= SENTENCES


def test_each_verb_of_the_program_begins_a_command() -> None:
    assert {name.split()[0] for name in verbs()} == VERBS
    for verb in VERBS:
        sentence = f"see snaprebuild {verb} --plan FILE"
        assert with_arguments(sentence) == sentence


def test_refusals_of_uploaders_name_arguments(tmp_path: Path) -> None:
    """``ensure_snapshot`` shares its sentences with ``rebuild --out`` and ``--replay-from``."""
    logs = copy_of("kafka27-mixed", tmp_path)
    with pytest.raises(SnapshotRefusedError) as refused:
        ensure_snapshot(logs / "mixed-0", 1151, out=logs)
    assert refused.value.message.startswith("out leads into ")
    remove_snapshots(logs / "mixed-0")
    window = ReplayOptions(replay_from="window", expiration_ms=1000)
    with pytest.raises(SnapshotRefusedError) as unproven:
        ensure_snapshot(logs / "mixed-0", 6390, options=window)
    accepted = ensure_snapshot(logs / "mixed-0", 6390, options=replace(window, allow_unproven=True))
    texts = [unproven.value.message, *unproven.value.reasons, *accepted.reasons]
    assert not OPTION.findall(" ".join(texts))


def test_documents_and_findings_name_arguments() -> None:
    """Documents of a result and of a log directory; the JSON is that of the command."""
    result = library.verify(FIXTURES / "damaged" / "stale", as_of_ms=4_070_908_800_000)
    assert "--as-of" in result.to_json()
    sentences = [each.message for each in LogDir(FIXTURES / "damaged").findings]
    for partition in result.document.partitions:
        for snapshot in partition.snapshots:
            sentences += snapshot.comparison.reasons if hasattr(snapshot.comparison, "reasons") else ()
    assert not OPTION.findall(" ".join(sentences))
    bare = library.rebuild(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", dry_run=True)
    texts = re.findall(r"'[^']*'|\"[^\"]*\"", repr(bare.document.partitions))
    assert not [each for each in texts if OPTION.findall(COMMAND.sub("", each))]


def test_show_names_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    library.verify(FIXTURES / "damaged" / "stale", as_of_ms=4_070_908_800_000).show()
    printed = capsys.readouterr()
    lines = [line for line in (printed.out + printed.err).splitlines() if not line.startswith(("Next: ", "Then: ", "Undo: "))]
    assert "as_of_ms" in " ".join(lines)
    assert not OPTION.findall(COMMAND.sub("", "\n".join(lines)))


def test_a_mistake_in_the_selection_names_arguments() -> None:
    (finding,) = library.scan(FIXTURES / "kafka27-mixed", topics="mxied").findings
    assert finding.message.endswith("; did you mean `topics mixed`?")
    with pytest.raises(UsageError) as absent:
        Partition(FIXTURES / "kafka27-mixed")
    assert not OPTION.findall(absent.value.message)
    with pytest.raises(UsageError) as wrong:
        validate_snapshot(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", b"", None)
    assert "next_base_offset" in wrong.value.message
