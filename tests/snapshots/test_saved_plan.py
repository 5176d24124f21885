"""Plans as files: what is saved is what is loaded, however large; what was cut off, changed or overtaken by the disk is refused."""

import dataclasses
import hashlib
import json
import os
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from documents import validator_of
from log_dirs import EMPTY_SNAPSHOT, batch, copy_of, make_log_dir, remove_snapshots, snapshot_name, write_partition
from msgspec.structs import replace
from plans import load_plan, planned
from schema_validator import Draft202012Validator
from sentences import PLAN_IS_STALE

from snaprebuild.errors import ReadFailedError, RefusedError, UsageError
from snaprebuild.snapshots.plan import plan_file as saved_plan
from snaprebuild.snapshots.plan.plan_file import save_plan
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.plan.plan_request import RebuildRequest
from snaprebuild.storage.store import S3Settings


def saved(tmp_path: Path, plan: Plan) -> Path:
    save_plan(plan, str(tmp_path / "plan.json"))
    return tmp_path / "plan.json"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def write_signed(path: Path, lines: list[Any]) -> None:
    """The lines, and a closing line that is right for them."""
    above = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    closing = {"partitions": len(lines) - 1, "sha256": hashlib.sha256(above).hexdigest()}
    path.write_bytes(above + json.dumps(closing).encode() + b"\n")


def test_a_plan_survives_being_saved(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    options = {
        "topics": ("m*", "plain"),
        "partitions": (0, 3),
        "offset_from": 5,
        "boundaries": "all",
        "set_aside": True,
        "check_crc": False,
    }
    plan = planned(logs, **options)
    assert load_plan(str(saved(tmp_path, plan))) == plan
    # One that was made with an expiration of the broker keeps it, though the configuration changes.
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms=77\n")
    configured = planned(server_properties=str(properties))
    path = saved(tmp_path, configured)
    properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms=78\n")
    loaded = load_plan(str(path))
    assert loaded.clock == configured.clock
    assert loaded.clock.expiration_ms == 77


def test_what_is_saved(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs", recovery_points={"t-0": 7}, log_start_offset_checkpoint="0\n1\nt 0 5\n")
    directory = write_partition(logs / "t-0", {0: batch(0, count=3), 3: batch(3, count=4), 7: batch(7), 9: b""})
    (directory / snapshot_name(7)).write_bytes(EMPTY_SNAPSHOT)
    header, partition, closing = lines_of(path := saved(tmp_path, planned(logs)))
    assert header["schema"] == "snaprebuild.saved-plan/8"
    assert header["request"]["paths"] == [str(logs)]
    assert header["expiration_ms"] == 86_400_000

    def file(offset: int, name: str) -> dict[str, int]:
        status = (directory / name).stat()
        return {"offset": offset, "size_bytes": status.st_size, "modified_ns": status.st_mtime_ns, "inode": status.st_ino}

    assert partition == {
        "path": str(directory),
        "topic_partition": "t-0",
        "target": str(directory),
        "log_start_offset": 5,
        "log_end_offset": 9,
        "clean_shutdown": True,
        "recovery_point": 7,
        "replay_index": 0,
        "boundaries": [9],
        "not_planned": {"a broker deletes snapshots at or below the log start offset 5": [3]},
        "segments": [file(base, f"{base:020d}.log") for base in (0, 3, 7, 9)],
        "snapshots": [file(7, snapshot_name(7))],
    }
    above = path.read_bytes().splitlines(keepends=True)[:-1]
    assert closing == {"partitions": 1, "sha256": hashlib.sha256(b"".join(above)).hexdigest()}


def test_how_a_metadata_log_in_a_store_is_reached(tmp_path: Path) -> None:
    """Without these settings the plan could not be made again, although all of its partitions are files."""
    plan = planned(make_log_dir(tmp_path / "logs"))
    assert lines_of(saved(tmp_path, plan))[0]["request"]["s3"] is None
    settings = S3Settings(endpoint_url="http://127.0.0.1:9", path_style=True)
    asked = replace(plan.request, metadata="s3://bucket/__cluster_metadata-0", s3=settings)
    header = lines_of(saved(tmp_path, replace(plan, request=asked)))[0]
    assert (header["request"]["s3"]["endpoint_url"], header["request"]["s3"]["path_style"]) == ("http://127.0.0.1:9", True)
    assert validator_of("saved-plan").is_valid(header)


def test_the_schema(tmp_path: Path) -> None:
    validator = validator_of("saved-plan")
    logs = copy_of("kafka27-mixed", tmp_path)
    lines = lines_of(saved(tmp_path, planned(logs)))
    assert len(lines) == 2 + 4
    for kind, line in (("header", lines[0]), ("partition", lines[1]), ("partition", lines[3]), ("closing", lines[-1])):
        assert validator.is_valid(line)
        own = Draft202012Validator({**validator.schema, "oneOf": [{"$ref": f"#/$defs/{kind}"}]})  # type: ignore[dict-item]
        assert own.is_valid(line)
        assert not own.is_valid({**line, "more": 1})
        for key in line:
            assert not own.is_valid({other: value for other, value in line.items() if other != key})
    own, plan = validator.schema["$defs"]["request"], validator_of("plan").schema["$defs"]["SavedRequest"]  # type: ignore[index]
    assert (own["properties"].keys(), sorted(own["required"])) == (plan["properties"].keys(), sorted(plan["required"]))


def test_a_request_is_described_once() -> None:
    """The request is the struct of its document; only ``s3`` has more: the run whose limits it counts."""
    assert set(RebuildRequest.__annotations__) == {"s3"}
    asked = RebuildRequest(
        paths=("s3://bucket/logs",), out="s3://bucket/out", s3=S3Settings(profile="backup", max_requests=3), set_aside=True
    )
    assert RebuildRequest.of(asked.document) == asked
    assert RebuildRequest.of(asked.document).s3.run
    assert RebuildRequest.of(RebuildRequest(paths=("/logs",)).document) == RebuildRequest(paths=("/logs",))


@pytest.mark.parametrize("name", ["\0", "\ud800"])
@pytest.mark.parametrize("option", ["out", "topics", "paths"])
def test_a_name_that_no_file_can_have(option: str, name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, planned(make_log_dir(tmp_path / "logs")))
    lines = lines_of(path)
    wrong = f"/tmp/{name}"
    lines[0]["request"][option] = wrong if option == "out" else [wrong]
    write_signed(path, lines[:-1])
    with pytest.raises(UsageError, match=rf"line 1: request: expected .*`\.{option}"):
        load_plan(str(path))


# --- moved on --------------------------------------------------------------------------------------------------------------


def test_what_differs_is_named(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    path = str(saved(tmp_path, planned(logs)))

    def stale() -> str:
        with pytest.raises(RefusedError, match=f"{PLAN_IS_STALE}: ") as caught:
            load_plan(path)
        assert caught.value.path == str(logs / "mixed-0")
        reason, _, rest = caught.value.message.removeprefix(f"{PLAN_IS_STALE}: ").partition(". Nothing was written. ")
        reason = reason.removeprefix("1 of 4 partitions changed, this one: ")
        assert rest == "Make the plan again with `snaprebuild plan`"
        return reason

    status = (logs / "mixed-0" / f"{1151:020d}.log").stat()
    os.utime(logs / "mixed-0" / f"{1151:020d}.log", ns=(5, 5))
    seconds, nanoseconds = divmod(status.st_mtime_ns, 10**9)
    was = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"
    again = "1970-01-01 00:00:00.000000005Z"
    assert stale() == f"segments: the one at offset 1151 was written at {was}, and again at {again}"
    os.utime(logs / "mixed-0" / f"{1151:020d}.log", ns=(status.st_atime_ns, status.st_mtime_ns))
    assert load_plan(path).partitions

    (logs / "log-start-offset-checkpoint").write_text("0\n2\ndeleted 0 298\nmixed 0 583\n")
    assert stale() == "log start offset: was 0, is 583"
    (logs / "log-start-offset-checkpoint").write_text("0\n1\ndeleted 0 298\n")
    (logs / "mixed-0" / snapshot_name(583)).mkdir()
    assert stale() == "snapshots to write: was 583, is 1151"
    (logs / "mixed-0" / snapshot_name(583)).rmdir()
    remove_snapshots(logs / "mixed-0", 8231)
    assert stale() == "snapshots to write: had 12 entries, has 13"


def test_a_reason_that_differs_is_named(tmp_path: Path) -> None:
    """The selection does not change; the reason for leaving out another boundary does."""
    logs = make_log_dir(tmp_path / "logs", log_start_offset_checkpoint="0\n1\nt 0 3\n")
    partition = write_partition(logs / "t-0", {0: batch(0, count=3), 3: batch(3), 4: batch(4)})
    path = saved(tmp_path, planned(logs))
    lines = lines_of(path)
    assert list(lines[1]["not_planned"].values()) == [[3]]
    lines[1]["not_planned"] = {"because of the moon": [3]}
    write_signed(path, lines[:-1])
    with pytest.raises(RefusedError, match=r"snapshots not to write: because of the moon: had 1 entry, has 0") as caught:
        load_plan(str(path))
    assert caught.value.path == str(partition)


def test_partitions_that_come_and_go(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for name in ("a-0", "b-0"):
        write_partition(logs / name, {0: batch(0), 1: batch(1)})
    path = saved(tmp_path, planned(logs))
    lines = lines_of(path)
    write_partition(logs / "c-0", {0: batch(0)})
    with pytest.raises(RefusedError, match="was created after") as caught:
        load_plan(str(path))
    assert caught.value.path == str(logs / "c-0")
    write_signed(path, [*lines[:-1], lines[2]])
    with pytest.raises(RefusedError, match="the partition of line 4 is gone"):
        load_plan(str(path))


# --- cut off, changed ------------------------------------------------------------------------------------------------------


def test_a_plan_that_was_cut_off_is_refused_before_the_disk_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, planned(copy_of("kafka27-mixed", tmp_path)))
    monkeypatch.setattr(saved_plan, "make_plan", lambda *_, **__: pytest.fail("it was planned again"))
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 0x0A]
    for line, end in enumerate(ends[:-1], start=1):
        path.write_bytes(whole[:end])
        with pytest.raises(UsageError, match=rf"line {line}: expected the closing line .*\(the file was cut off\)"):
            load_plan(str(path))
        path.write_bytes(whole[: end + 7])
        with pytest.raises(UsageError, match=rf"line {line + 1}: expected a whole line .*, found 7 bytes without an end"):
            load_plan(str(path))
    path.write_bytes(whole + whole)
    with pytest.raises(UsageError, match=r"line 12: expected the SHA-256 of the lines above"):
        load_plan(str(path))


def test_any_byte_that_changed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, planned(copy_of("magicup", tmp_path)))
    monkeypatch.setattr(saved_plan, "make_plan", lambda *_, **__: pytest.fail("it was planned again"))
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 0x02,)) + whole[at + 1 :])
        with pytest.raises(UsageError, match=r"line \d+: (expected .* found |object )"):
            load_plan(str(path))


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "another version": lambda header: {**header, "schema": "snaprebuild.saved-plan/7"},
    "a store that is none": lambda header: {**header, "request": {**header["request"], "s3": {"endpoint_url": None}}},
    "no expiration": lambda header: {key: value for key, value in header.items() if key != "expiration_ms"},
    "an expiration that is a text": lambda header: {**header, "expiration_ms": "long"},
    "an option less": lambda header: {
        **header,
        "request": {key: value for key, value in header["request"].items() if key != "out"},
    },
    "an unknown option": lambda header: {**header, "request": {**header["request"], "force": True}},
    "a path that is a number": lambda header: {**header, "request": {**header["request"], "paths": [1]}},
    "a clock without end": lambda header: {**header, "request": {**header["request"], "as_of_ms": 10**30}},
    "a flag that is a number": lambda header: {**header, "request": {**header["request"], "set_aside": 1}},
    "boundaries of its own": lambda header: {**header, "request": {**header["request"], "boundaries": "some"}},
    "a start of its own": lambda header: {**header, "request": {**header["request"], "replay_from": "middle"}},
    "a list": lambda header: [header],
}


@pytest.mark.parametrize("edit", EDITS)
def test_a_header_that_is_none(edit: str, tmp_path: Path) -> None:
    path = saved(tmp_path, planned(copy_of("magicup", tmp_path)))
    header, *partitions, _ = lines_of(path)
    write_signed(path, [EDITS[edit](header), *partitions])
    with pytest.raises(UsageError, match=r"is (not a saved plan|damaged|of another version): line 1: ") as caught:
        load_plan(str(path))
    assert caught.value.path == str(path)


@pytest.mark.parametrize("line", [7, [], {"path": 5}], ids=repr)
def test_a_partition_that_is_none(line: object, tmp_path: Path) -> None:
    path = saved(tmp_path, planned(copy_of("magicup", tmp_path)))
    write_signed(path, [lines_of(path)[0], line])
    with pytest.raises((UsageError, RefusedError), match="line 2"):
        load_plan(str(path))


def test_a_partition_with_other_fields(tmp_path: Path) -> None:
    path = saved(tmp_path, planned(copy_of("magicup", tmp_path)))
    header, partition, _ = lines_of(path)
    write_signed(path, [header, {key: value for key, value in partition.items() if key != "segments"}])
    with pytest.raises(UsageError, match="line 2: object missing required field `segments`"):
        load_plan(str(path))


def test_a_count_that_is_wrong(tmp_path: Path) -> None:
    path = saved(tmp_path, planned(copy_of("magicup", tmp_path)))
    path.write_bytes(path.read_bytes().replace(b'"partitions": 1, "sha256"', b'"partitions": 2, "sha256"'))
    with pytest.raises(UsageError, match="line 3: expected 1 partition, found 2"):
        load_plan(str(path))


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        load_plan(str(tmp_path / "absent"))
    (tmp_path / "link").symlink_to(saved(tmp_path, planned(make_log_dir(tmp_path / "logs"))))
    for path in (tmp_path / "link", "/dev/zero"):
        with pytest.raises(ReadFailedError, match=r"is a symbolic link|is no regular file"):
            load_plan(str(path))


# --- large -----------------------------------------------------------------------------------------------------------------


def large(tmp_path: Path, partitions: int, segments: int) -> Plan:
    """A plan for this many partitions of this many segments, which are on no disk."""
    write_partition(tmp_path / "t-0", {0: batch(0), 1: batch(1)})
    plan = planned(tmp_path / "t-0")
    (model,) = plan.partitions
    files = model.source.directory.segments[0]
    listed = tuple(replace(files, base_offset=1_000_000_007 * number) for number in range(segments))
    directory = dataclasses.replace(model.source.directory, segments=listed)
    return replace(
        plan,
        partitions=tuple(
            replace(model, source=replace(model.source, directory=dataclasses.replace(directory, path=f"/logs/t-{number}")))
            for number in range(partitions)
        ),
    )


@pytest.mark.full
def test_memory_is_that_of_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = large(tmp_path, partitions=100, segments=300)
    monkeypatch.setattr(saved_plan, "make_plan", lambda *_, **__: plan)
    tracemalloc.start()
    try:
        path = saved(tmp_path, plan)
        assert load_plan(str(path)).partitions == plan.partitions
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    size = path.stat().st_size
    assert size > 1_300_000
    assert peak < size / 4, "neither the file nor what is in it is held as a whole"


def test_a_line_without_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path, planned(make_log_dir(tmp_path / "logs")))
    monkeypatch.setattr(saved_plan, "LINE_BYTES_MAX", 100)
    with pytest.raises(UsageError, match="line 1: expected a whole line of at most 100 bytes, found 100 bytes without an end"):
        load_plan(str(path))
