"""Values that make no sense, and healthy ones next to them, for each argument of each public function that reads or writes logs.

A value that is accepted and means something else than its author thinks is worse than an error. Seconds in place of milliseconds expire
no producer, and an empty path is the working directory.
"""

import inspect
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, copy_of, snapshot_name, tree
from manifests import AIVEN, FIXTURES, REPOSITORY

import snaprebuild as library
from snaprebuild import (
    LogDir,
    Partition,
    ReplayFrom,
    ReplayOptions,
    Result,
    S3Settings,
    UsageError,
    ensure_snapshot,
    prepare_upload,
    validate_snapshot,
)
from snaprebuild.library.arguments import CHECKS, checked_argument
from snaprebuild.snapshots.engine import schedule
from snaprebuild.snapshots.run import Run
from snaprebuild.spark import notebook
from snaprebuild.tier import AuditLevel

LOGS = FIXTURES / "kafka27-mixed" / "logs"
MIXED = LOGS / "mixed-0"
BOUNDARY = 1151
STORE = FIXTURES / "tiered-local" / "remote"
METADATA_LOG = FIXTURES / "tiered-local" / "logs"
PRIVATE_KEY = AIVEN / "keys" / "key1.private.pem"
ABSENT_PARTITION = (1 << 31) - 1
SEGMENT = MIXED / f"{snapshot_name(583).removesuffix('.snapshot')}.log"
NOW_MS = 1_795_270_000_000
TOPIC_ID = "pnG54XS0SyKCbPV6BzO-OQ"
HALF = "\ud800"
"""Half of a character: no name on a disk is decoded to it."""


pytestmark = pytest.mark.usefixtures("own_state_home")


NO_PATHS: tuple[Any, ...] = ("", b"", 5, 1.5, True, "a\0b", HALF, object(), "~/of-nobody/x")
NO_NUMBERS: tuple[Any, ...] = ("5", b"5", 1.0, math.nan, True, False, (), -1, 1 << 63, -(1 << 70))
NO_FLAGS: tuple[Any, ...] = ("no", "false", 0, 1, None, b"")
NO_TEXTS: tuple[Any, ...] = ("", 5, b"text", True, "a\0b", HALF)
NO_SETTINGS: tuple[Any, ...] = (
    None,
    {"endpoint_url": "http://localhost:9000"},
    "http://localhost:9000",
    S3Settings(endpoint_url="http://u:secret@127.0.0.1:1"),
    S3Settings(endpoint_url=""),
    S3Settings(anonymous=True, requester_pays=True),
    S3Settings(anonymous="no"),  # type: ignore[arg-type]
    S3Settings(max_requests=-1),
    S3Settings(max_requests=0),
    S3Settings(max_read_bytes="5GiB"),  # type: ignore[arg-type]
    S3Settings(profile=""),
)
SECONDS = NOW_MS // 1000
NO_MOMENTS: tuple[Any, ...] = (*("now", "2026-01-01", 1.0, True, math.nan), -1, SECONDS, 20_260_101, 253_402_300_800_000)

BAD: dict[str, tuple[Any, ...]] = {
    "source": (*NO_PATHS, [""], ["a", 5], (), None, [None], "/nowhere", "s3://", "s3a://bucket/x", "file:///x", MIXED / "meta"),
    "server_properties": (*NO_PATHS, LOGS, "/nowhere/server.properties", SEGMENT),
    "topics": (*NO_TEXTS, [""], ["a", None], {"a": 1, "": 2}, None),
    "partitions": (*(each for each in NO_NUMBERS if each != ()), [True], ["0"], 1 << 31, None),
    "topic_partitions": (*NO_TEXTS, "orders", "orders-", "orders--1x", "orders-2147483648", ["orders-0", "orders"], None),
    "offset_from": NO_NUMBERS,
    "offset_to": NO_NUMBERS,
    "out": (*NO_PATHS, "s3://", "s3a://bucket/x", REPOSITORY / "README.md"),
    "broker_running": NO_FLAGS,
    "boundaries": (*NO_TEXTS, "some", "MISSING", None),
    "replay_from": (*NO_TEXTS, "start", "AUTO", None),
    "set_aside": NO_FLAGS,
    "check_crc": NO_FLAGS,
    "drop_expired": NO_FLAGS,
    "allow_unproven": NO_FLAGS,
    "accept_topic_id_zero": NO_FLAGS,
    "kafka_release": (*NO_TEXTS, "1", "four", 4.3, "99.0.0"),
    "as_of_ms": NO_MOMENTS,
    "expiration_ms": (*NO_NUMBERS, 0, "1d"),
    "metadata": (*NO_PATHS, SEGMENT),
    "s3": NO_SETTINGS,
    "dry_run": NO_FLAGS,
    "receipt": NO_PATHS,
    "results": NO_PATHS,
    "jobs": (*NO_NUMBERS, 0, 5000),
    "progress": (5, "print", True),
    "impact": (*NO_TEXTS, "some", "LOW"),
    "max_read_rate": (*NO_NUMBERS, 0, "64MiB"),
    "engine": ("spark", 5, object()),
    "plan": (*NO_PATHS, "/nowhere", SEGMENT, library.scan(MIXED)),
    "tasks": (*NO_NUMBERS, 0, -1, 1 << 31),
    "cache": NO_PATHS,
}
"""Values that every verb refuses, by argument."""

HEALTHY: dict[str, tuple[Any, ...]] = {
    "source": (LOGS, str(LOGS), bytes(LOGS), [LOGS], (MIXED, bytes(LOGS))),
    "server_properties": (None,),
    "topics": ((), "mixed", ["mixed", "p*"], {"mixed"}),
    "partitions": ((), 0, [0, 7], np.int32(0), range(2), np.arange(2), ABSENT_PARTITION),
    "topic_partitions": ((), "mixed-0", ["mixed-0", "plain-0"]),
    "offset_from": (None, 0, np.int64(5)),
    "offset_to": (None, (1 << 63) - 1, np.uint64(9000)),
    "out": (None,),
    "broker_running": (False,),
    "boundaries": ("missing", "all"),
    "replay_from": ("auto", "window", "log-start", ReplayFrom.AUTO),
    "set_aside": (False, True),
    "check_crc": (True, False),
    "drop_expired": (True, False),
    "allow_unproven": (True, False),
    "accept_topic_id_zero": (True, False),
    "kafka_release": (None, "4.3.1", "3.9"),
    "as_of_ms": (None, 0, NOW_MS, np.int64(NOW_MS), NOW_MS + 86_400_000 * 365, 253_402_300_799_999),
    "expiration_ms": (None, 1, 86_400_000, (1 << 63) - 1),
    "metadata": (None,),
    "s3": (S3Settings(), S3Settings(max_requests=1, endpoint_url="http://127.0.0.1:9000", profile="p")),
    "dry_run": (True,),
    "receipt": (None,),
    "results": (None,),
    "jobs": (None, 1, 1024, np.int8(2)),
    "progress": (None, lambda *_: None),
    "impact": (None, "low", "normal", "full"),
    "max_read_rate": (None, 1 << 30, (1 << 63) - 1),
    "engine": (None,),
    "plan": (None,),
    "tasks": (None, 1, (1 << 31) - 1),
    "cache": (None, "/var/cache/effects", b"/var/cache/effects", "s3://bucket/effects"),
}
"""Values that every verb takes, by argument."""

BAD |= {
    "store": (*NO_PATHS, None, [STORE], "/nowhere", "s3://", "s3a://bucket/x", LOGS, SEGMENT),
    "level": (*NO_TEXTS, "all", "FULL", None),
    "metadata_log": (*NO_PATHS, [""], None, "/nowhere"),
    "key_prefix": (*(each for each in NO_TEXTS if each != ""), None),
    "private_key": (*NO_PATHS, [""], None, "/nowhere.pem", "a=/nowhere.pem", SEGMENT, LOGS),
    "local_log_start": (*NO_TEXTS, "mixed-0", "mixed-0=x", "mixed-0=1500", None),
    "log_dir": (*NO_PATHS, [""], None, "/nowhere", LOGS),
    "bootstrap_server": (*NO_TEXTS, "nowhere", "a:0"),
    "command_config": (*NO_PATHS, "/nowhere"),
    "ledger": (*NO_PATHS, SEGMENT, LOGS),
}
HEALTHY |= {
    "store": (STORE, str(STORE), bytes(STORE)),
    "level": ("full", "reachable", "structure", AuditLevel.FULL),
    "metadata_log": ((), METADATA_LOG, [bytes(METADATA_LOG)]),
    "key_prefix": ("",),
    "private_key": ((), PRIVATE_KEY, [f"one={PRIVATE_KEY}", bytes(PRIVATE_KEY)]),
    "local_log_start": ((),),
    "log_dir": ((),),
    "bootstrap_server": (None,),
    "command_config": (None,),
    "ledger": (None,),
}

VERBS: dict[str, Callable[..., Any]] = {
    "scan": library.scan,
    "plan": library.plan,
    "rebuild": library.rebuild,
    "verify": library.verify,
    "audit": library.audit,
}
NEEDED: dict[str, dict[str, Any]] = {"rebuild": {"source": MIXED, "dry_run": True}, "audit": {"store": STORE}}
"""The arguments of a healthy call of a verb, if they are not only a source."""
CASES = [(verb, name) for verb, call in VERBS.items() for name in inspect.signature(call).parameters]

IN_A_SESSION = ("tasks", "cache")
"""Arguments that only the functions for a Spark session have."""


def refused(call: Callable[..., Any], *values: Any, **arguments: Any) -> None:
    """A call that ends in a ``UsageError`` with one line, and shows no password."""
    with pytest.raises(UsageError) as error:
        call(*values, **arguments)
    assert "\n" not in str(error.value)
    assert "secret" not in str(error.value)
    str(error.value).encode()


@pytest.mark.parametrize(("verb", "name"), CASES, ids=["-".join(each) for each in CASES])
def test_a_verb_refuses_what_makes_no_sense(verb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = tree(LOGS)
    for value in BAD[name]:
        arguments = {**NEEDED.get(verb, {"source": MIXED}), name: value}
        if name == "plan":
            arguments["source"] = ()
        refused(VERBS[verb], **arguments)
    assert tree(LOGS) == before
    assert not (tmp_path / "state").exists(), "a receipt"


@pytest.mark.parametrize(("verb", "name"), CASES, ids=["-".join(each) for each in CASES])
def test_a_verb_takes_what_is_healthy(verb: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for value in HEALTHY[name]:
        if verb == "audit" and value is ABSENT_PARTITION:
            continue  # where nothing is selected, a log directory was looked at, and a store was not
        arguments = {**NEEDED.get(verb, {"source": MIXED}), name: value}
        result = VERBS[verb](**arguments)
        assert result.exit_code in (0, 1, 3, 4), (value, result.answer)
        assert result.to_json()


def test_the_tables_have_each_argument() -> None:
    names = {name for _, name in CASES}
    in_a_session = {name for verb in VERBS for name in inspect.signature(getattr(notebook, verb)).parameters}
    in_a_session -= {"session", "options"}
    assert in_a_session - names == {*IN_A_SESSION}
    assert BAD.keys() == HEALTHY.keys() == CHECKS.keys() == {*names, *IN_A_SESSION}
    assert all(BAD[name] and HEALTHY[name] for name in BAD)


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_for_a_session_refuses_what_makes_no_sense(verb: str) -> None:
    """Before anything is sent to the session, which is none here."""
    call = getattr(notebook, verb)
    for name in set(inspect.signature(call).parameters) & {*IN_A_SESSION}:
        for value in BAD[name]:
            refused(call, object(), MIXED, **{name: value})
        for value in HEALTHY[name]:
            assert checked_argument(name, value) in (value, "/var/cache/effects")


@pytest.mark.parametrize("verb", VERBS)
def test_a_function_for_a_session_has_no_worker_processes(verb: str) -> None:
    """They would be accepted and ignored. A notebook has no type checker that shows it."""
    with pytest.raises(UsageError, match=r"^jobs: the executors of the session read"):
        getattr(notebook, verb)(object(), MIXED, jobs=2)


@pytest.mark.parametrize("verb", VERBS)
def test_a_path_in_the_place_of_the_session(verb: str) -> None:
    """``scan("/path")`` and ``scan("/path", spark)``: the functions of the package have no session."""
    call = getattr(notebook, verb)
    expected = "session: expected the SparkSession before the paths, found str: without Spark call the function of this name"
    for words in ((str(MIXED), object()), (str(MIXED), str(MIXED))):
        with pytest.raises(UsageError) as caught:
            call(*words)
        assert caught.value.message.startswith(expected)


@pytest.mark.parametrize(
    ("verb", "given", "names"),
    [
        ("audit", {"local_log_start": "mixed-0=1500"}, "local_log_start and log_dir go with level reachable"),
        ("audit", {"level": "reachable", "local_log_start": "mixed-0"}, "local_log_start: expected TOPIC-PARTITION=OFFSET"),
        ("audit", {"level": "reachable", "local_log_start": "nosuch-0=4"}, "local_log_start: nosuch-0 is not in remote storage"),
        ("verify", {"offset_from": 10**12}, "offset_from and offset_to: no boundary"),
        ("plan", {"broker_running": True, "set_aside": True}, "set_aside needs a broker that is stopped: not with broker_running"),
        (
            "plan",
            {"broker_running": True, "boundaries": "all"},
            "broker_running is for snapshots that are missing: not with boundaries",
        ),
        ("rebuild", {"results": "results.txt", "dry_run": True}, "results: expected a file that ends with"),
        ("scan", {"source": ()}, "name at least one path, or the server_properties of a broker"),
    ],
)
def test_a_refusal_names_arguments(verb: str, given: dict[str, Any], names: str) -> None:
    """And no option of the command, with which the library shares its checks."""
    with pytest.raises(UsageError) as error:
        VERBS[verb](**{**NEEDED.get(verb, {"source": MIXED}), **given})
    assert names in error.value.message
    assert error.value.args == (error.value.message,)
    assert "--" not in str(error.value)


def texts_of(result: Result[Any, Any]) -> list[str]:
    """Every sentence of a result, without the commands that it proposes."""
    reasons = [each for row in result.rows() for each in (row.get("reason") or "", *row.get("reasons", ()))]
    texts = [result.answer, *(finding.message for finding in result.findings), *reasons]
    return [re.sub("`[^`]*`|snaprebuild .*", "", each) for each in texts]


def test_a_result_names_arguments(tmp_path: Path) -> None:
    """No finding, answer or reason of a row names an option. The document and what ``show`` prints are those of the command."""
    logs = copy_of("kafka27-mixed", tmp_path)
    wrong = logs / "mixed-0" / snapshot_name(7045)
    wrong.write_bytes(EMPTY_SNAPSHOT)
    torn = copy_of("kafka4-mixed", tmp_path / "torn")
    next(torn.glob("mixed-0/*.snapshot")).write_bytes(b"torn")
    bare = tmp_path / "bare"
    shutil.copytree(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", bare / "mixed-0")
    results = [
        library.plan(logs),
        library.rebuild(logs, dry_run=True),
        library.rebuild(torn, dry_run=True),
        library.rebuild(bare, dry_run=True),
        library.plan(bare, allow_unproven=True),
        library.rebuild(FIXTURES / "damaged" / "logs", dry_run=True, boundaries="all"),
        library.verify(FIXTURES / "damaged" / "stale", as_of_ms=4_070_908_800_000),
        library.verify(FIXTURES / "damaged"),
        library.scan(FIXTURES / "damaged"),
        library.audit(FIXTURES / "follower-lost-state" / "remote"),
    ]
    options = {each for result in results for text in texts_of(result) for each in re.findall("--[a-z][a-z-]*", text)}
    assert options <= {"--bootstrap-server"}, "a Kafka tool may be named"
    named = " ".join(text for result in results for text in texts_of(result))
    assert "(as_of_ms)" in named
    assert "set_aside" in named
    assert "--as-of" in results[6].to_json(), "the command's document"


def test_a_moment_names_the_range_that_is_documented() -> None:
    for moment in (-1, -(1 << 70), 253_402_300_800_000, 1 << 70):
        with pytest.raises(UsageError, match=f"^as_of_ms: {moment} is not between 1970 and 9999$"):
            library.verify(MIXED, as_of_ms=moment)


def test_two_offsets_in_the_wrong_order() -> None:
    refused(library.verify, MIXED, offset_from=5, offset_to=4)
    refused(library.plan, MIXED, offset_from=5, offset_to=4)


def counts_of(result: Result[Any, Any]) -> list[str]:
    """Counts in the answer, without a time that depends on the load of the machine."""
    return re.findall("[0-9]+ [a-z]+", result.answer.partition(" in about")[0])


def test_no_setting_of_the_command_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program does the same on each machine. The command is refused by the same environment."""
    before = {verb: counts_of(call(**NEEDED.get(verb, {"source": MIXED}))) for verb, call in VERBS.items()}
    config = tmp_path / "config.toml"
    config.write_text('impact = "nonsense"\njobs = -1\nno_setting = 5\n')
    monkeypatch.setenv("SNAPREBUILD_CONFIG", str(config))
    for name in ("IMPACT", "JOBS", "MAX_READ_RATE", "ENGINE", "S3_ENDPOINT_URL", "MAX_REQUESTS", "CACHE", "PRIORITY"):
        monkeypatch.setenv(f"SNAPREBUILD_{name}", "nonsense")
    after = {verb: call(**NEEDED.get(verb, {"source": MIXED})) for verb, call in VERBS.items()}
    assert {verb: counts_of(each) for verb, each in after.items()} == before
    assert all(each.to_json() and "nonsense" not in each.to_json() for each in after.values())


# ---------------------------------------------------------------------------------------------------------- for uploaders

OPTIONS_BAD: dict[str, tuple[Any, ...]] = {
    "as_of_ms": NO_MOMENTS,
    "expiration_ms": (*NO_NUMBERS, 0, None),
    "replay_from": (*NO_TEXTS, "nowhere", None),
    "check_crc": NO_FLAGS,
    "allow_unproven": NO_FLAGS,
    "allow_unsound": NO_FLAGS,
    "jobs": (*NO_NUMBERS, 0, 5000, None),
    "s3": NO_SETTINGS,
}
OPTIONS_HEALTHY: dict[str, tuple[Any, ...]] = {
    "as_of_ms": (None, 0, NOW_MS),
    "expiration_ms": (1, 86_400_000),
    "replay_from": ("auto", "window", "log-start", ReplayFrom.WINDOW),
    "check_crc": (True, False),
    "allow_unproven": (True, False),
    "allow_unsound": (True, False),
    "jobs": (1, 1024),
    "s3": (S3Settings(), S3Settings(max_requests=5)),
}


@pytest.mark.parametrize("name", OPTIONS_BAD)
def test_replay_options(name: str) -> None:
    assert OPTIONS_BAD.keys() == OPTIONS_HEALTHY.keys() == inspect.signature(ReplayOptions).parameters.keys()
    for value in OPTIONS_BAD[name]:
        refused(ReplayOptions, **{name: value})
    for value in OPTIONS_HEALTHY[name]:
        assert getattr(ReplayOptions(**{name: value}), name) == value


ENSURED = ensure_snapshot(MIXED, BOUNDARY)
ONE_SEGMENT = Partition(MIXED).rolled_segments()[0]
LIMITS: dict[str, tuple[Any, ...]] = {
    "max_bytes": NO_NUMBERS,
    "timeout_s": ("5", b"5", math.nan, True, (), -1, -0.5, -math.inf),
}
NO_OPTIONS: tuple[Any, ...] = (None, {}, "auto", 5)
NO_DIRECTORIES: tuple[Any, ...] = (*NO_PATHS, None, "/nowhere-0", LOGS, FIXTURES)

HOOKS_BAD: dict[str, tuple[Callable[..., Any], dict[str, Any], dict[str, tuple[Any, ...]]]] = {
    "LogDir": (LogDir, {"path": LOGS}, {"path": (*NO_PATHS, None, "/nowhere"), "options": NO_OPTIONS}),
    "Partition": (Partition, {"directory": MIXED}, {"directory": NO_DIRECTORIES, "options": NO_OPTIONS}),
    "ensure_snapshot": (
        ensure_snapshot,
        {"partition_dir": MIXED, "next_base_offset": BOUNDARY},
        {
            "partition_dir": NO_DIRECTORIES,
            "next_base_offset": (*NO_NUMBERS, None, 0, BOUNDARY + 1),
            "options": NO_OPTIONS,
            "after": (5, "x", b"", {}),
            "out": (*NO_PATHS, "s3://", "s3a://bucket/x"),
            **LIMITS,
        },
    ),
    "prepare_upload": (
        prepare_upload,
        {"segment": SEGMENT, "topic_id": TOPIC_ID},
        {
            "segment": (*NO_PATHS, None, MIXED, MIXED / "no.log", MIXED / f"{7:020}.log"),
            "options": (*NO_OPTIONS, ReplayOptions(check_crc=False), ReplayOptions(allow_unsound=True)),
            "after": (5, "x", b"", {}),
            "topic_id": (*NO_TEXTS, "short", "x" * 22 + "!"),
            "high_watermark": NO_NUMBERS,
            "source": (5, "x", MIXED),
            **LIMITS,
        },
    ),
    "validate_snapshot": (
        validate_snapshot,
        {"partition": MIXED, "snapshot": EMPTY_SNAPSHOT, "next_base_offset": BOUNDARY},
        {
            "partition": NO_DIRECTORIES,
            "snapshot": ("", 5, None, True, bytearray(EMPTY_SNAPSHOT), "a\0b", HALF),
            "next_base_offset": (*NO_NUMBERS, None, 0, BOUNDARY + 1),
            "options": NO_OPTIONS,
            "after": (5, "x", b"", {}),
            **LIMITS,
        },
    ),
    "Segment.snapshot": (ONE_SEGMENT.snapshot, {}, LIMITS),
    "Segment.prepare_upload": (
        ONE_SEGMENT.prepare_upload,
        {"topic_id": TOPIC_ID},
        {"topic_id": (*NO_TEXTS, "short"), "high_watermark": NO_NUMBERS, **LIMITS},
    ),
}


@pytest.mark.parametrize("name", HOOKS_BAD)
def test_a_function_for_uploaders(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(copy_of("kafka27-mixed", tmp_path) / "mixed-0")  # where an empty path leads to
    before = tree(tmp_path)
    call, healthy, bad = HOOKS_BAD[name]
    if "." not in name:
        assert bad.keys() == inspect.signature(call).parameters.keys()
    call(**healthy)
    for argument, values in bad.items():
        for value in values:
            refused(call, **{**healthy, argument: value})
    assert tree(tmp_path) == before


def test_healthy_limits() -> None:
    for limits in (
        {"max_bytes": 1 << 40, "timeout_s": 60},
        {"timeout_s": math.inf},
        {"timeout_s": np.float32(60)},
        {"max_bytes": np.int64(1 << 40)},
    ):
        assert ensure_snapshot(MIXED, np.int64(BOUNDARY), after=ENSURED, **limits).data == ENSURED.data


# --------------------------------------------------------------------------------------------------------------- progress


class ExampleError(Exception):
    """An error of the caller."""


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("calls", [1, 3, 9])
def test_an_error_of_progress_ends_the_run(calls: int, jobs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives at the caller. Each file is whole or absent, and the receipt is closed and lists what is there."""
    monkeypatch.setattr(schedule, "IN_PROCESS_BYTES_MAX", 0)
    logs = copy_of("kafka27-mixed", tmp_path)
    before = tree(logs)
    wanted = tree(logs).keys()
    seen: list[str] = []

    def progress(what: str, _: int) -> None:
        seen.append(what)
        if len(seen) == calls:
            raise ExampleError("the caller has enough")

    receipt = tmp_path / "receipt.jsonl"
    with pytest.raises(ExampleError, match="the caller has enough") as error:
        library.rebuild(logs, jobs=jobs, receipt=receipt, progress=progress)
    assert len(seen) == calls, "it is not called again"
    written = tree(logs).keys() - wanted - {".lock"}
    assert all(name.endswith(".snapshot") for name in written)
    assert {name: tree(logs)[name] for name in before} == before
    if not receipt.exists():
        assert written == set()
        assert not hasattr(error.value, "__notes__")
        return
    assert error.value.__notes__ == [f"receipt of what was written: {receipt} (`snaprebuild undo` takes it back)"]
    assert receipt.read_text().splitlines()[-1].startswith('{"step":"end"')
    state = snaprebuild("verify", "--written-by", receipt, "--output", "json").document
    assert {each["path"] for each in state["files"]} == {str(logs / name) for name in written}
    assert {each["status"] for each in state["files"]} <= {"kept"}
    assert not [each for each in library.verify(logs) for one in each.snapshots if one.comparison.proven_wrong]
    assert in_json("undo", receipt).exit_code == 0
    assert tree(logs).keys() - {".lock"} == before.keys() - {".lock"}


def test_an_error_of_progress_is_raised_at_the_end_of_another_engine(tmp_path: Path) -> None:
    """Tasks elsewhere would go on writing: they are done first. The receipt and the table have all of their files."""

    class Elsewhere:
        """An engine that calls at its end, in the thread of the caller."""

        cache = None
        words = ()

        def planning(self) -> None:
            return None

        def reading(self, progress: Any) -> Any:
            def read(tasks: Any) -> None:
                schedule.run_tasks(tasks, Run())
                progress("tasks", 5)
                progress("tasks", 5)

            return read

        def keep_effects(self, *_: object) -> None:
            pass

    calls: list[int] = []

    def enough(_: str, size: int) -> None:
        calls.append(size)
        raise ExampleError

    logs = copy_of("kafka27-mixed", tmp_path)
    receipt = tmp_path / "receipt.jsonl"
    results = tmp_path / "results.jsonl"
    with pytest.raises(ExampleError) as error:
        library.rebuild(logs, receipt=receipt, results=results, progress=enough, engine=Elsewhere())  # type: ignore[arg-type]
    assert len(calls) == 1
    assert error.value.__notes__ == [f"receipt of what was written: {receipt} (`snaprebuild undo` takes it back)"]
    assert sum(json.loads(line)["action"] == "written" for line in results.read_text().splitlines()) == 14
    assert receipt.read_text().splitlines()[-1].startswith('{"step":"end"')
    assert in_json("undo", receipt).document["totals"]["removed"] == 14


def test_an_error_of_progress_ends_a_verification() -> None:
    def progress(*_: object) -> None:
        raise ExampleError

    with pytest.raises(ExampleError):
        library.verify(MIXED, progress=progress)
