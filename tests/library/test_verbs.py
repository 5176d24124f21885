"""``scan``, ``plan``, ``rebuild``, ``verify`` and ``audit`` of the library: what the commands of these names do, with the same defaults."""

import contextlib
import inspect
import io
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of, entries_in, files_below, snapshot_name, tree, truth
from manifests import AIVEN, FIXTURES, REPOSITORY
from same_result import RUN_AND_FILES, without

import snaprebuild as library
from snaprebuild import RefusedError, Result, S3Settings, UsageError, WriteFailedError
from snaprebuild.argument_names import OPTIONS
from snaprebuild.cli.main import verbs
from snaprebuild.library import call_options
from snaprebuild.library.command_line import SETTINGS, CommandLine
from snaprebuild.spark import notebook

AS_OF_MS = 1_795_270_000_000
DIRECTORIES = ("kafka27-mixed", "kafka27-killed", "kafka27-compacted", "damaged")


def shown(result: Result[Any, Any]) -> tuple[str, str]:
    """Output of ``show`` on stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(REPOSITORY), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        result.show()
    return out.getvalue(), err.getvalue()


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what differs between two runs on copies; the speed of a disk is one of these."""
    left_out = (*RUN_AND_FILES, "rate_bytes_per_second", "estimated_seconds", "answer")
    found = without(document, left_out)
    assert isinstance(found, dict)
    return found


CALLS: dict[str, tuple[Callable[..., Result[Any, Any]], dict[str, Any], list[str]]] = {
    "scan": (library.scan, {}, []),
    "scan of some": (
        library.scan,
        {"topics": "*mixed*", "partitions": 0, "kafka_release": "3.9.1"},
        ["--topic", "*mixed*", "--partition", "0", "--kafka-release", "3.9.1"],
    ),
    "plan": (library.plan, {"as_of_ms": AS_OF_MS}, ["--as-of", str(AS_OF_MS)]),
    "plan of all": (
        library.plan,
        {"as_of_ms": AS_OF_MS, "boundaries": "all", "replay_from": "log-start", "check_crc": False, "offset_from": 500},
        ["--as-of", str(AS_OF_MS), "--boundaries", "all", "--replay-from", "log-start", "--crc", "skip", "--offsets", "500:"],
    ),
    "rebuild": (library.rebuild, {"as_of_ms": AS_OF_MS, "dry_run": True}, ["--as-of", str(AS_OF_MS), "--dry-run"]),
    "rebuild of all": (
        library.rebuild,
        {"as_of_ms": AS_OF_MS, "dry_run": True, "boundaries": "all", "set_aside": True, "expiration_ms": 1000, "offset_to": 3000},
        [
            *("--as-of", str(AS_OF_MS), "--dry-run", "--boundaries", "all", "--set-aside"),
            *("--expiration-ms", "1000", "--offsets", ":3000"),
        ],
    ),
    "verify": (library.verify, {"as_of_ms": AS_OF_MS}, ["--as-of", str(AS_OF_MS)]),
    "verify of one": (
        library.verify,
        {"as_of_ms": AS_OF_MS, "topics": ["mixed", "k*"], "jobs": 1, "check_crc": False},
        ["--as-of", str(AS_OF_MS), "--topic", "mixed", "--topic", "k*", "--jobs", "1", "--crc", "skip"],
    ),
}


ARGUMENTS = {
    "(--as-of)": "(as_of_ms)",
    "--allow-unproven": "allow_unproven",
    "--boundaries": "boundaries",
    "--level": "level",
    "--local-log-start": "local_log_start",
    "--log-dir": "log_dir",
    "--metadata-log": "metadata_log",
    "--out DIR": "out DIR",
    "--output json": "the document",
    "--server-properties": "server_properties",
    "--set private_key": "private_key",
    "--set-aside": "set_aside",
}
"""Text of a result in place of each option that the commands of these tests print outside of a command line."""


def named(text: str) -> str:
    """Output of a command, with arguments in place of options."""
    lines = []
    for line in text.splitlines():
        sentence, command, words = line.partition("snaprebuild ")
        for option, argument in ARGUMENTS.items():
            sentence = sentence.replace(option, argument)
        lines.append(f"{sentence}{command}{words}")
    return "\n".join(lines)


def words_of(text: str) -> Counter[str]:
    """The words of a text, wherever its lines are wrapped and however wide its columns are."""
    return Counter(text.replace("─", "").split())


@pytest.mark.parametrize("directory", DIRECTORIES)
@pytest.mark.parametrize("case", CALLS)
def test_a_call_gives_the_document_of_the_command_and_shows_its_output(case: str, directory: str) -> None:
    """The whole of stdout and stderr, and each member of the document: findings, exit code and next command, too."""
    call, arguments, words = CALLS[case]
    logs = f"fixtures/{directory}/logs"
    verb = case.partition(" ")[0]
    with contextlib.chdir(REPOSITORY):
        result = call(logs, **arguments)
    before = tree(FIXTURES / directory / "logs")
    if verb == "plan":  # each run measures the speed of the disk
        out = [line for line in shown(result)[0].splitlines() if "to read in about" not in line]
        command = snaprebuild(verb, logs, *words)
        printed = [line for line in command.stdout.splitlines() if "to read in about" not in line]
        assert words_of("\n".join(out)) == words_of(named("\n".join(printed)))
    else:
        command = snaprebuild(verb, logs, *words)
        assert [words_of(text) for text in shown(result)] == [words_of(named(text)) for text in (command.stdout, command.stderr)]
    document = in_json(verb, logs, *words).document
    with contextlib.chdir(REPOSITORY):
        found = json.loads(result.to_json())
    assert plain(found) == plain(document)
    assert found["next_command"] == document["next_command"] == result.next_command
    assert (list(found), result.exit_code) == (list(document), command.exit_code)
    assert len(result) == len(document["partitions"])
    assert [each.topic_partition for each in result] == [each["topic_partition"] for each in document["partitions"]]
    assert [each.code for each in result.findings] == [each["code"] for each in document["findings"]]
    assert tree(FIXTURES / directory / "logs") == before


AUDITS: dict[str, tuple[Path, dict[str, Any], list[str]]] = {
    "a wrong snapshot": (AIVEN / "diseased-zstd" / "store", {}, []),
    "encrypted": (
        AIVEN / "encrypted-zstd" / "store",
        {"private_key": [AIVEN / "keys" / "key1.private.pem"], "topics": "mixed", "jobs": 1},
        ["--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}", "--topic", "mixed", "--jobs", "1"],
    ),
    "without its key": (AIVEN / "encrypted-zstd" / "store", {"partitions": 0}, ["--partition", "0"]),
    "some may be reached": (
        FIXTURES / "tiered-local" / "remote",
        {"level": "reachable", "local_log_start": "mixed-0=1500", "expiration_ms": 1000},
        ["--level", "reachable", "--local-log-start", "mixed-0=1500", "--expiration-ms", "1000"],
    ),
    "live copies are known": (
        FIXTURES / "tiered-local" / "remote",
        {"metadata_log": FIXTURES / "tiered-local" / "logs", "level": "structure"},
        ["--metadata-log", str(FIXTURES / "tiered-local" / "logs"), "--level", "structure"],
    ),
}


@pytest.mark.parametrize("case", AUDITS)
def test_an_audit_gives_the_document_of_the_command_and_shows_its_output(case: str) -> None:
    store, arguments, words = AUDITS[case]
    moment = ("--as-of", str(AS_OF_MS))
    before = tree(store)
    result = library.audit(store, as_of_ms=AS_OF_MS, **arguments)
    command = snaprebuild("tier", "audit", store, *words, *moment)
    announced, _, findings = command.stderr.partition("\n")
    assert announced.startswith("to be read: ")
    assert [words_of(text) for text in shown(result)] == [words_of(named(text)) for text in (command.stdout, findings)]
    document = in_json("tier", "audit", store, *words, *moment).document
    found = json.loads(result.to_json())
    assert plain(found) == plain(document)
    assert sorted((result.next_command or "").split()) == sorted((document["next_command"] or "").split())
    assert (list(found), result.exit_code) == (list(document), command.exit_code)
    assert [each.code for each in result.findings] == [each["code"] for each in document["findings"]]
    copies = [copy for each in document["partitions"] for copy in each["copies"]]
    assert [(row["segment_id"], row["verdict"]) for row in result.rows()] == [
        (copy["segment_id"], copy["verdict"]) for copy in copies
    ]
    for row in result.rows():
        assert row.keys() == result.columns.keys()
        assert all(value is None or type(value) is result.columns[name] for name, value in row.items())
    recorded = ["snaprebuild", "tier", "audit", *words, *moment, str(store)]
    assert sorted(shlex.split(result.document.run.command)) == sorted(recorded)
    assert tree(store) == before


def test_what_an_audit_refuses() -> None:
    store = FIXTURES / "tiered-local" / "remote"
    for arguments, message in (
        ({"store": FIXTURES / "kafka27-mixed" / "logs"}, "is a log directory: name STORE"),
        ({"store": store, "log_dir": FIXTURES / "kafka27-mixed" / "logs"}, "go with level reachable"),
        ({"store": store, "private_key": [AIVEN / "keys"]}, "the private key cannot be read"),
        ({"store": store, "topics": "nothing"}, "has no copy of a segment that the selection takes"),
    ):
        with pytest.raises(UsageError, match=message):
            library.audit(**arguments)


def test_a_value_is_one_short_line() -> None:
    for case, (call, arguments, _) in CALLS.items():
        for directory in DIRECTORIES:
            text = repr(call(FIXTURES / directory / "logs", **arguments))
            assert text.startswith(f"<{case.partition(' ')[0]}, exit code ")
            assert len(text) <= 170
            assert "\n" not in text


# ---------------------------------------------------------------------------------------------------- from every entrance

NOT_OF_THE_LIBRARY = {
    "output": "the result is a value: `show`, `to_json`, `document`",
    "report": "--save-json: `to_json`",
    "metrics": "what a collector reads is written by the command",
    "verbose": "the result has everything",
    "quiet": "for cron",
    "save": "`PlanResult.save`",
    "to": "of `stage`, which is a command",
    "engine": "the notebook's functions are those of Spark",
    "master": "a session has one",
    "cache": "an argument of the notebook's functions",
    "written_by": "of `verify`, which then replays nothing",
    "offsets": "two arguments: `offset_from` and `offset_to`",
    "s3_endpoint_url": "a field of `s3`",
}
"""Parameters of the command that are no arguments, each with the reason."""

NOT_OF_AUDIT = {
    "server_properties": "for the place of the store, which a program names",
    "broker_credentials": "of server_properties",
}
"""Parameters of `tier audit` that are no arguments of ``audit``, each with the reason."""

OWN = {"offset_from", "offset_to", "s3", "progress", "engine", "max_read_rate", "key_prefix", "private_key"}
"""Arguments that are no option: parts of one, settings, and what only a program can give."""

BY_ANOTHER_NAME = {
    "paths": "source",
    "directory": "out",
    "topic": "topics",
    "partition": "partitions",
    "topic_partition": "topic_partitions",
    "as_of": "as_of_ms",
    "crc": "check_crc",
}
VERBS = {"scan": "scan", "plan": "plan", "rebuild": "rebuild", "verify": "verify", "audit": "tier audit"}
"""The words that call the verb of each function."""

DEFAULTS = {"check": True}
"""Defaults of options that have another value in a program. None and an empty list are the same."""


def options_of(verb: str) -> dict[str, Any]:
    """The defaults of the command's parameters, by the names of the arguments."""
    found = {}
    for each in verbs()[VERBS[verb]].params:
        assert each.name is not None
        if each.name in NOT_OF_THE_LIBRARY or each.name in ("set", "config", "help_all"):
            continue
        if verb == "audit" and each.name in NOT_OF_AUDIT:
            continue
        default = getattr(each.default, "value", each.default)
        found[BY_ANOTHER_NAME.get(each.name, each.name)] = DEFAULTS.get(default, default)
    return found


@pytest.mark.parametrize("verb", VERBS)
def test_the_defaults_are_those_of_the_command(verb: str) -> None:
    parameters = inspect.signature(getattr(library, verb)).parameters
    defaults = {name: each.default for name, each in parameters.items() if name not in OWN}
    defaults |= {name: None for name, value in defaults.items() if value is inspect.Parameter.empty}
    command = options_of(verb)
    assert defaults.keys() == command.keys()
    assert {name: value or None for name, value in defaults.items()} == {name: value or None for name, value in command.items()}
    assert all(parameters[name].default in (None, (), "", S3Settings()) for name in OWN & parameters.keys())
    assert OPTIONS.keys() | SETTINGS.keys() >= (defaults.keys() - {"source", "store", "check_crc"}), (
        "each has its word on a command line"
    )


@pytest.mark.parametrize("verb", VERBS)
def test_the_notebook_passes_each_argument_on(verb: str) -> None:
    """It has no default of its own, so that there is one only."""
    own = {"source", "store", "plan", "progress", "engine", "jobs"}
    wanted = {name: kind for name, kind in get_type_hints(getattr(library, verb)).items() if name not in own | {"return"}}
    assert get_type_hints(getattr(call_options, f"{verb.capitalize()}Options")) == wanted
    parameters = inspect.signature(getattr(notebook, verb)).parameters
    assert parameters.keys() <= {"session", "source", "store", "plan", "cache", "progress", "tasks", "options"}
    assert {parameters[name].default for name in ("plan", "cache", "progress", "tasks") if name in parameters} <= {None}


def test_every_option_is_an_option_of_its_verb() -> None:
    """The words of a command line are read without checks, so that a wrong one would be lost silently."""
    parameters = {name: {word for each in command.params for word in each.opts} for name, command in verbs().items()}
    for function, verb in VERBS.items():
        arguments = inspect.signature(getattr(library, function)).parameters
        assert {OPTIONS[name] for name in arguments if name in OPTIONS} <= parameters[verb]


def test_words_that_begin_with_a_dash_are_paths(tmp_path: Path) -> None:
    settings = S3Settings(path_style=True, max_requests=9, endpoint_url="http://store:9000")
    command = CommandLine.of("scan", ["-odd"], topics=("a b",), s3=settings, max_read_rate=5)
    wanted = "snaprebuild scan --topic 'a b' --set max_read_rate=5 --s3-endpoint-url http://store:9000 --set s3_path_style=true"
    assert command.text == f"{wanted} --set max_requests=9 -- -odd"
    with command.active():
        context = click.get_current_context()
        assert context.command_path == "snaprebuild scan"
        assert list(context.params["paths"]) == ["-odd"]
    assert click.get_current_context(silent=True) is None


# ------------------------------------------------------------------------------------------------------------- in place


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where receipts are."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "snaprebuild"


def test_a_rebuild_has_a_receipt_and_undo_takes_it_back(tmp_path: Path, state: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    dry = library.rebuild(logs, dry_run=True)
    assert dry.document.receipt is None
    assert not state.exists()
    assert tree(logs) == before
    result = library.rebuild(logs, as_of_ms=0)
    (receipt,) = state.glob("snaprebuild-receipt-*.jsonl")
    assert result.document.receipt == str(receipt)
    assert result.document.totals.written == 14
    written = files_below(logs) - before.keys()
    for name in written - {".lock"}:
        partition, _, file = name.rpartition("/")
        assert entries_in((logs / name).read_bytes()) == truth("kafka27-mixed", partition)[int(file.removesuffix(".snapshot"))]
    assert snaprebuild("undo", receipt).exit_code == 0
    assert tree(logs).keys() - {".lock"} == before.keys() - {".lock"}


def test_each_call_has_its_own_moment_in_its_record(tmp_path: Path, state: Path) -> None:
    """A notebook runs for days: what it records is not of the time when it was started."""
    moments = []
    for name in ("one", "two"):
        logs = copy_of("kafka27-mixed", tmp_path / name)
        library.rebuild(logs, as_of_ms=0, receipt=tmp_path / name / "receipt.jsonl")
        header = json.loads((tmp_path / name / "receipt.jsonl").read_text().splitlines()[0])
        moments.append(header["run"]["at_ms"])
        assert header["run"]["command"] == f"snaprebuild rebuild --as-of 0 --receipt {tmp_path / name}/receipt.jsonl {logs}"
    assert moments[0] < moments[1]
    first, second = (library.verify(logs) for _ in range(2))
    assert moments[1] < first.document.run.at_ms < second.document.run.at_ms
    assert first.document.run.command == f"snaprebuild verify {logs}"


def test_a_plan_is_carried_out_also_from_a_file(tmp_path: Path, state: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    planned = library.plan(logs, out=tmp_path / "out", boundaries="all", as_of_ms=AS_OF_MS)
    planned.save(tmp_path / "plan")
    boundaries = sum(len(each.boundaries) for each in planned)
    assert not (tmp_path / "out").exists()
    for plan, dry_run, action in ((planned, True, "would_write"), (tmp_path / "plan", False, "written"), (planned, False, "equal")):
        result = library.rebuild(plan=plan, dry_run=dry_run)
        assert getattr(result.document.totals, action) == boundaries
    command = in_json("rebuild", logs, "--out", tmp_path / "out", "--boundaries", "all", "--as-of", AS_OF_MS)
    assert result.next_command == command.document["next_command"]
    assert library.rebuild(plan=planned, dry_run=True, check_crc=True).document.request == planned.document.request
    for more in ({"source": logs}, {"out": tmp_path}, {"check_crc": False}, {"as_of_ms": 1}):
        with pytest.raises(UsageError, match=f"give {next(iter(more))} to plan"):
            library.rebuild(plan=planned, **more)  # type: ignore[arg-type]
    assert snaprebuild("plan", logs, "--to", tmp_path / "staged", "--save", tmp_path / "of-stage").exit_code == 0
    with pytest.raises(UsageError, match="the plan is one of `stage`: run snaprebuild stage --plan"):
        library.rebuild(plan=tmp_path / "of-stage")
    with pytest.raises(WriteFailedError, match="No such file or directory"):
        planned.save(tmp_path / "nowhere" / "plan")


def test_the_next_command_of_a_plan_carries_out_that_plan(tmp_path: Path, state: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    planned = library.plan(logs, topics="mixed", as_of_ms=AS_OF_MS)
    wanted = f"snaprebuild rebuild {logs} --as-of {AS_OF_MS} --topic mixed"
    assert sorted((planned.next_command or "").split()) == sorted(wanted.split())
    dry = library.rebuild(plan=planned, dry_run=True)
    assert sorted((dry.next_command or "").split()) == sorted(wanted.split())


def test_an_error_names_the_receipt_of_what_was_written(tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook has no stderr that anybody reads: the note is in the traceback."""
    from snaprebuild.snapshots.rebuild.run import RebuildRun

    def ended(*_: object) -> None:
        raise RefusedError("it ends here")

    monkeypatch.setattr(RebuildRun, "ended", ended)
    logs = copy_of("kafka27-mixed", tmp_path)
    with pytest.raises(RefusedError) as error:
        library.rebuild(logs, as_of_ms=0)
    (receipt,) = state.glob("*.jsonl")
    assert error.value.__notes__ == [f"receipt of what was written: {receipt} (`snaprebuild undo` takes it back)"]


# ------------------------------------------------------------------------------------------------------------- arguments


def test_paths_in_every_form(tmp_path: Path) -> None:
    logs = FIXTURES / "kafka27-mixed" / "logs"
    wanted = [each.path for each in library.scan(logs)]
    for source in (str(logs), os.fsencode(logs), [logs], (str(logs), os.fsencode(logs / "mixed-0"))):
        assert [each.path for each in library.scan(source)] == wanted
    odd = tmp_path / os.fsdecode(b"odd-\xff")
    odd.symlink_to(logs)
    assert len(library.verify(os.fsencode(odd))) == len(wanted)
    assert json.loads(library.scan(odd).to_json())["totals"]["partitions"] == len(wanted)


def test_an_iterator_selects_what_its_list_selects(tmp_path: Path, state: Path) -> None:
    """An iterator that is read twice is empty the second time, and an empty selection would take everything."""
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    calls: tuple[Callable[..., Any], ...] = (library.rebuild, library.plan, library.scan, library.verify)
    for call in calls:
        for name, values in (("topics", ["plain"]), ("partitions", [7]), ("topic_partitions", ["plain-0"])):
            shown = [call(logs, **{name: selected}) for selected in (values, iter(values))]
            assert [each.topic_partition for each in shown[0]] == [each.topic_partition for each in shown[1]]
            assert len(shown[0]) < 4
    written = {path for path in tree(logs) if path not in before}
    assert not {path for path in written if "plain-0" not in str(path)}


def test_the_table_of_a_rebuild_is_checked_before_it_writes(tmp_path: Path, state: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    for arguments in ({"results": tmp_path / "nowhere" / "x.jsonl"}, {"results": logs / "x.jsonl"}):
        with pytest.raises((UsageError, RefusedError)):
            library.rebuild(logs, **arguments)
    with pytest.raises(UsageError, match="results and receipt are one file"):
        library.rebuild(logs, results=tmp_path / "x.jsonl", receipt=tmp_path / "x.jsonl")
    assert tree(logs) == before


def test_the_table_of_each_result() -> None:
    """A row for each partition, boundary or snapshot, with the values of the document and the types of the columns."""
    logs = FIXTURES / "kafka27-mixed" / "logs"
    scanned, verified = library.scan(logs), library.verify(logs)
    planned = library.plan(logs, boundaries="all", as_of_ms=AS_OF_MS)
    rebuilt = library.rebuild(logs, dry_run=True, as_of_ms=AS_OF_MS)
    for result in (scanned, planned, rebuilt, verified):
        rows = result.rows()
        assert rows
        for row in rows:
            assert row.keys() == result.columns.keys()
            assert all(value is None or type(value) is result.columns[name] for name, value in row.items())
    assert [row["missing"] for row in scanned.rows()] == [len(each.missing_offsets) for each in scanned]
    present = {(each.parent.name, int(each.stem)) for each in logs.rglob("*.snapshot")}
    assert {(row["topic_partition"], row["offset"]) for row in verified.rows()} == present
    assert {row["status"] for row in verified.rows()} == {"equal"}
    missing = {(each.topic_partition, offset) for each in scanned for offset in each.missing_offsets}
    assert {(row["topic_partition"], row["offset"]) for row in rebuilt.rows()} == missing
    assert {(row["topic_partition"], row["offset"]) for row in planned.rows() if row["action"] == "planned"} >= missing
    assert snapshot_name(583) not in os.listdir(logs / "mixed-0")


@pytest.mark.full
def test_a_data_frame_has_exact_offsets() -> None:
    """With a value that is unknown in the same column: as a float, the offset would be another one."""
    pandas = pytest.importorskip("pandas")
    result = library.scan(FIXTURES / "kafka27-killed" / "logs")
    frame = result.to_pandas()
    assert len(frame) == len(result)
    assert frame["last_stable_offset"].isna().any()
    assert frame.astype(object).where(frame.notna(), None).to_dict("records") == result.rows()
    large = (1 << 62) + 1
    assert pandas.Series([large, None], dtype="Int64")[0] == large


def test_without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = library.scan(FIXTURES / "kafka27-mixed" / "logs")
    with pytest.raises(UsageError, match=r"pip install 'pandas<3'"):
        result.to_pandas()


# ---------------------------------------------------------------------------------------------------- programs of users

PROGRAM = '''"""What a user of the library writes."""

import sys
from pathlib import Path

from snaprebuild import (
    LogDir,
    Partition,
    PlanResult,
    RefusalReason,
    ReportedFinding,
    SnapshotRefusedError,
    UploadRefusalReason,
    UploadRefusedError,
    plan,
    rebuild,
    scan,
    verify,
)


def repaired(logs: Path, out: Path) -> list[str]:
    scanned = scan(logs, topics=["mixed"])
    missing: dict[str, int] = {each.topic_partition: len(each.missing_offsets) for each in scanned}
    findings: tuple[ReportedFinding, ...] = scanned.findings
    planned: PlanResult = plan([logs], out=out, topics="mixed")
    written: int = rebuild(plan=planned, dry_run=True).document.totals.would_write
    wrong: list[bool] = [one.comparison.proven_wrong for each in verify(bytes(logs)) for one in each.snapshots]
    return [str(missing), str(len(findings)), str(written), str(len(wrong))]


def uploads(logs: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for partition in LogDir(logs):
        stable: int | None = partition.last_stable_offset
        end: int = partition.log_end_offset
        with partition:
            for segment in partition:
                try:
                    segment.prepare_upload(topic_id="pnG54XS0SyKCbPV6BzO-OQ", timeout_s=60)
                except UploadRefusedError as error:
                    reason: UploadRefusalReason = error.reason
                    found[f"{partition.topic}-{partition.partition} {segment.base_offset} of {end}, {stable}"] = reason.name
                    break
                except SnapshotRefusedError as error:
                    if error.reason is RefusalReason.CHANGED:
                        continue
                    break
    return found


if __name__ == "__main__":
    print(*repaired(Path(sys.argv[1]), Path(sys.argv[2])), sep="; ")
    for name, reason in uploads(Path(sys.argv[1])).items():
        print(name, reason)
    print(len(Partition(Path(sys.argv[1]) / "mixed-0")))
'''


def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    """Python loads the main module of a program again in each worker, unless told otherwise: then the script would begin again there."""
    script = tmp_path / "script.py"
    script.write_text(
        "import sys\n"
        "import snaprebuild\n"
        "from snaprebuild.snapshots.engine import schedule, worker_pool\n"
        "print('loaded', flush=True)\n"
        "schedule.IN_PROCESS_BYTES_MAX = 0  # as if the directory were large\n"
        "started = []\n"
        "run = worker_pool.WorkerPool.run\n"
        "worker_pool.WorkerPool.run = lambda pool: started.append(pool.jobs) or run(pool)\n"
        "result = snaprebuild.verify(sys.argv[1], jobs=2, as_of_ms=0)\n"
        "print(started, result.exit_code, result.document.totals.equal)\n"
    )
    words = [sys.executable, str(script), str(FIXTURES / "kafka27-mixed" / "logs")]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "loaded\n[2] 0 9\n")


@pytest.mark.full
def test_a_program_of_a_user_is_typed_and_runs(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    logs = FIXTURES / "kafka27-mixed" / "logs"
    done = subprocess.run(
        [sys.executable, str(program), str(logs), "out"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    first, *refusals, count = done.stdout.splitlines()
    findings = len(in_json("scan", logs, "--topic", "mixed").document["findings"])
    assert first == f"{{'mixed-0': 12}}; {findings}; 12; 9"
    assert "mixed-0 6390 of 8231, 6913 ABOVE_LAST_STABLE_OFFSET" in refusals
    assert count == "14"
