"""``dump`` as a user runs it: every bundled file of every kind, and each kind of damage with its place."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import COMMAND, Run, snaprebuild
from documents import check_lines
from index_reference import write_transaction_index
from log_dirs import batch, batch_positions, cut, flip, marker, record, snapshot_name, truth, write_segment
from manifests import FIXTURES, REPOSITORY, is_known_corruption
from sentences import INVALID_BYTES, MORE_OF_THIS_KIND

from formats.partition.file_names import DumpedKind
from formats.partition.producer_snapshot import ProducerEntry
from formats.partition.transaction_index import AbortedTransaction
from snaprebuild.replay.difference import ENTRY_FIELDS

MIXED = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
LOG = MIXED / "00000000000000000000.log"
ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".deleted", "checkpoint", "quorum-state")
KAFKA_FILES = sorted(
    path
    for path in FIXTURES.rglob("*")
    if path.is_file()
    and not is_known_corruption(path)
    and "aiven-layout" not in path.parts  # chunks of segments, in no broker's files
    and (path.name.endswith(ENDINGS) or path.name in ("partition.metadata", "meta.properties", ".kafka_cleanshutdown"))
)
EMPTY_SNAPSHOT_BYTES = 10
BY_NAME: dict[tuple[str, str], list[Path]] = {}
"""By what the names end with, and segments of before 0.11 and of metadata logs by themselves."""
for _path in KAFKA_FILES:
    if _path.stat().st_size > EMPTY_SNAPSHOT_BYTES:
        _place = next((part for part in _path.parts if part in ("magic0", "magic1", "__cluster_metadata-0")), "")
        BY_NAME.setdefault((_path.suffix or _path.name, _place), []).append(_path)


def in_lines(*arguments: object) -> tuple[Run, list[dict[str, Any]]]:
    """Runs ``dump --output json``: every line follows the schema, and the last one says the exit code of the process."""
    run = snaprebuild("inspect", "dump", *arguments, "--output", "json")
    lines = check_lines(run.stdout)
    assert lines[-1]["exit_code"] == run.exit_code
    return run, lines


def of(lines: list[dict[str, Any]], item: str) -> list[dict[str, Any]]:
    return [line for line in lines if line["item"] == item]


def one_finding(*arguments: object) -> dict[str, Any]:
    _, lines = in_lines(*arguments)
    (finding,) = of(lines, "finding")
    return finding


# --- healthy files ---------------------------------------------------------------------------------------------------------


def test_every_kind_is_among_the_bundled_files() -> None:
    """The smallest file of each name: what is printed follows the schema, in text as many items as in lines, and nothing is changed."""
    smallest = [min(paths, key=lambda path: path.stat().st_size) for paths in BY_NAME.values()]
    before = [path.read_bytes() for path in smallest]
    run, lines = in_lines(*smallest, "--deep", "--print-data-log")
    assert run.exit_code == 0, run.stderr
    assert {line["kind"] for line in of(lines, "file")} == {kind.value for kind in DumpedKind}
    assert {line["kind_from"] for line in of(lines, "file")} == {"name"}
    assert [line["file"] for line in of(lines, "file")] == list(map(str, smallest))
    assert len(of(lines, "file_end")) == len(smallest)
    schema = json.loads((REPOSITORY / "docs" / "schema" / "inspect-dump.schema.json").read_text())
    forms = {each["$ref"].removeprefix("#/$defs/") for each in schema["oneOf"]}
    assert {line["item"] for line in lines} | {"finding"} == forms
    records = of(lines, "record") + of(lines, "control_record")
    assert sum(line["record_count"] for line in of(lines, "batch")) == len(records)
    text = snaprebuild("inspect", "dump", *smallest, "--deep", "--print-data-log")
    items = [line for line in lines if line["item"] not in ("file", "file_end", "finding", "end")]
    reported = ("Dumping ", "Log starting offset: ", "Snapshot end offset: ", "KRaft bootstrap snapshot")
    assert sum(not line.startswith(reported) for line in text.stdout.splitlines()) == len(items)
    assert [path.read_bytes() for path in smallest] == before


def test_snapshots_have_the_entries_of_the_manifest() -> None:
    _, lines = in_lines(MIXED / snapshot_name(8231))
    found = [ProducerEntry(*(line[name] for name in ("producer_id", *ENTRY_FIELDS))) for line in of(lines, "producer")]
    assert len(found) == 35
    assert frozenset(found) == truth("kafka27-mixed", "mixed-0")[8231]


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (LOG, "log"),
        (MIXED / snapshot_name(8231), "snapshot"),
        (MIXED / "leader-epoch-checkpoint", "leader-epoch-checkpoint"),
        (MIXED.parent / "recovery-point-offset-checkpoint", "offset-checkpoint"),
        (MIXED.parent / "meta.properties", "meta-properties"),
        (next(FIXTURES.rglob("partition.metadata")), "partition-metadata"),
        (next(FIXTURES.rglob("quorum-state")), "quorum-state"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_content_shows_where_the_name_does_not(source: Path, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "unnamed"
    shutil.copy(source, path)
    run, lines = in_lines(path)
    assert run.exit_code == 0, run.stderr
    assert (lines[0]["kind"], lines[0]["kind_from"]) == (kind, "content")
    assert lines[1] | {"file": ""} == in_lines(source)[1][1] | {"file": ""}


def test_an_index_needs_a_name_or_the_option(tmp_path: Path) -> None:
    path = tmp_path / "unnamed"
    shutil.copy(LOG.with_suffix(".index"), path)
    run = snaprebuild("inspect", "dump", path)
    assert (run.exit_code, run.stdout) == (2, "")
    assert "use --file-kind" in run.stderr
    _, lines = in_lines(path, "--file-kind", "offset-index")
    assert lines[0]["kind_from"] == "option"
    entries = of(lines, "offset_index_entry")
    assert entries[0]["agrees"] is None
    assert [line["position"] for line in entries] == [
        line["position"] for line in of(in_lines(LOG.with_suffix(".index"))[1], "offset_index_entry")
    ]


def test_an_unknown_file_keeps_no_other_from_being_dumped(tmp_path: Path) -> None:
    """The exit code is that of the worst."""
    path = tmp_path / "notes"
    path.write_bytes(b"hello")
    _, alone = in_lines(LOG)
    run, lines = in_lines(path, LOG)
    (reported,) = of(lines, "finding")
    assert (reported["code"], reported["severity"], reported["path"]) == ("unknown-kind", "finding", str(path))
    assert run.exit_code == 1
    assert of(lines, "batch") == of(alone, "batch")
    torn = tmp_path / LOG.name
    torn.write_bytes(LOG.read_bytes()[:-1])
    assert in_lines(path, torn)[0].exit_code == 4
    assert in_lines(path, tmp_path / "absent", torn)[0].exit_code == 4


def test_a_range_of_offsets_selects_what_is_shown() -> None:
    _, everything = in_lines(LOG, "--deep")
    _, some = in_lines(LOG, "--deep", "--offsets", "100:120")
    batches = of(some, "batch")
    assert batches == [line for line in of(everything, "batch") if line["last_offset"] >= 100 and line["base_offset"] <= 120]
    offsets = [line["offset"] for line in of(some, "record") + of(some, "control_record")]
    assert sorted(offsets) == list(range(100, 121))
    _, entries = in_lines(LOG.with_suffix(".index"))
    _, some = in_lines(LOG.with_suffix(".index"), "--offsets", "100:200")
    wanted = [line for line in of(entries, "offset_index_entry") if 100 <= line["offset"] <= 200]
    assert of(some, "offset_index_entry") == wanted
    assert 3 < len(wanted) < len(entries) - 10


def test_a_reader_that_goes_away_is_no_error() -> None:
    with subprocess.Popen(
        [*COMMAND, "inspect", "dump", "--deep", *map(str, MIXED.glob("*.log"))],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"Dumping ")
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(120) == 0


def test_payloads(tmp_path: Path) -> None:
    path = write_segment(tmp_path, batch(0, records=[record(value) for value in (b"text", b"\xff\xfe", b"two\nlines")]))
    _, lines = in_lines(path, "--print-data-log")
    assert [line["value"] for line in of(lines, "record")] == [{"text": "text"}, {"base64": "//4="}, {"text": "two\nlines"}]
    shown = snaprebuild("inspect", "dump", path, "--print-data-log").stdout.splitlines()[3:]
    assert [line.split(" payload: ")[1] for line in shown] == ["text", "base64://4=", "base64:dHdvCmxpbmVz"]


# --- Kafka's own topics ----------------------------------------------------------------------------------------------------

OFFSETS_LOG = FIXTURES / "txn-state4" / "logs" / "__consumer_offsets-0" / LOG.name
TRANSACTIONS_LOG = FIXTURES / "txn-state4" / "logs" / "__transaction_state-0" / LOG.name


def test_nothing_of_a_group_is_shown_without_a_decoder() -> None:
    for options in ((), ("--deep",)):
        run, lines = in_lines(OFFSETS_LOG, *options)
        assert "group" not in run.stdout
        assert not any("decoded_key" in line for line in lines)
        assert "group" not in snaprebuild("inspect", "dump", OFFSETS_LOG, *options).text


def test_records_are_decoded_by_the_name_of_the_directory() -> None:
    run, lines = in_lines(OFFSETS_LOG, TRANSACTIONS_LOG, "--decoder", "auto")
    assert run.exit_code == 0, run.stderr
    records = of(lines, "record")
    commit = next(line for line in records if line["decoded_key"]["data"].get("topic") == "mixed")
    assert commit["decoded_key"]["type"] == "1"
    assert isinstance(commit["decoded_value"]["data"]["offset"], int)
    assert (commit["key"], commit["value"]) == (None, None)
    assert any("transactionStatus" in line["decoded_value"]["data"] for line in records if isinstance(line["decoded_value"], dict))
    both = of(in_lines(OFFSETS_LOG, "--decoder", "offsets", "--print-data-log")[1], "record")
    assert both[0]["key"] is not None
    assert both[0]["decoded_key"] == records[0]["decoded_key"]
    old = snaprebuild("inspect", "dump", OFFSETS_LOG, "--decoder", "offsets", "--kafka-release", "3.7.1").stdout
    assert " key: offset_commit::group=" in old


def test_a_topic_without_a_decoder_is_dumped_and_reported() -> None:
    run, lines = in_lines(LOG, "--decoder", "auto", "--offsets", "0:3")
    (finding,) = [line for line in of(lines, "finding") if line["code"] == "no-decoder"]
    assert (finding["severity"], run.exit_code) == ("note", 0)
    assert of(lines, "record")
    tiered = FIXTURES / "tiered-local" / "logs" / "__remote_log_metadata-0" / LOG.name
    _, lines = in_lines(tiered, "--decoder", "auto", "--kafka-release", "3.8")
    assert "since 3.9" in next(line for line in of(lines, "finding") if line["code"] == "no-decoder")["message"]


def test_what_cannot_be_decoded_is_a_finding_with_no_data_in_it(tmp_path: Path) -> None:
    secret = record(b"secret")
    path = write_segment(tmp_path, batch(0, records=[secret, secret]))
    run, lines = in_lines(path, "--decoder", "offsets")
    (finding,) = of(lines, "finding")
    assert (finding["code"], run.exit_code) == ("undecoded-record", 1)
    assert "1 more" in finding["message"]
    assert "secret" not in run.text
    assert "Error at offset 0, skipping. " in of(lines, "record")[0]["decoded_key"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--kafka-release", "4.0"), "use it with --decoder"),
        (("--decoder", "offsets", "--kafka-release", "2.6.0"), "expected a release from 2.7 to "),
        (("--decoder", "offsets", "--kafka-release", "new"), "expected a release from 2.7 to "),
        (("--decoder", "remote-log-metadata", "--kafka-release", "3.8.0"), "3.9 or newer"),
        (("--offsets-decoder",), "Did you mean '--decoder offsets'?"),
        (("--payload",), "Did you mean '--print-data-log'?"),
    ],
)
def test_wrong_options_of_decoders(options: tuple[str, ...], message: str) -> None:
    run = snaprebuild("inspect", "dump", LOG, *options)
    assert (run.exit_code, run.stdout) == (2, "")
    assert message in run.stderr


# --- damage ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return Path(shutil.copy(LOG, tmp_path / LOG.name))


def test_a_torn_batch(log: Path) -> None:
    last = batch_positions(log)[-1]
    cut(log, last + 30)
    finding = one_finding(log)
    assert finding["code"] == "torn-tail"
    assert (finding["position"], finding["expected"], finding["found"]) == (last, "a whole batch", "30 bytes")
    run = snaprebuild("inspect", "dump", log)
    assert run.exit_code == 4
    assert run.stdout.endswith(f"Found 30 {INVALID_BYTES}{log.name}\n")


def test_a_wrong_checksum(log: Path) -> None:
    third, fifth = (batch_positions(log)[row] for row in (2, 4))
    flip(log, third + 70)
    flip(log, fifth + 70)
    run, lines = in_lines(log)
    (finding,) = of(lines, "finding")
    assert (run.exit_code, finding["code"], finding["position"]) == (4, "bad-checksum", third)
    assert "1 more" in finding["message"]
    assert [line["position"] for line in of(lines, "batch") if not line["is_valid"]] == [third, fifth]
    # What is read of it is reported, too.
    _, deep = in_lines(log, "--deep")
    assert {line["code"] for line in of(deep, "finding")} <= {"bad-checksum", "unreadable-records"}


def test_a_magic_that_no_broker_writes(log: Path) -> None:
    third = batch_positions(log)[2]
    flip(log, third + 16, 2 ^ 9)
    finding = one_finding(log)
    assert (finding["code"], finding["position"], finding["found"]) == ("damaged-segment", third + 16, "9")
    assert finding["expected"] == "0, 1 or 2"


def test_disorder(tmp_path: Path) -> None:
    first = batch(10, count=2)
    path = write_segment(tmp_path, first, batch(11), base_offset=10)
    finding = one_finding(path)
    assert (finding["code"], finding["position"]) == ("disordered-offsets", len(first))
    assert (finding["expected"], finding["found"]) == ("more than 11", "11")
    path.write_bytes(batch(9))
    assert (one_finding(path)["code"], one_finding(path)["expected"]) == ("disordered-offsets", "more than 9")


def test_gaps_between_batches_are_a_note(tmp_path: Path) -> None:
    """kafka-dump-log reports them, too. One before the first batch is none; in a compressed message of old no one knows."""
    batches = [batch(10, count=2), batch(13), batch(14), batch(100)]
    path = write_segment(tmp_path, *batches, base_offset=3)
    finding = one_finding(path)
    assert (finding["code"], finding["severity"], finding["position"]) == ("offset-gaps", "note", len(batches[0]))
    assert (finding["expected"], finding["found"], finding["offset"]) == ("12", "13", 13)
    assert f"and 1 {MORE_OF_THIS_KIND}" in finding["message"]
    assert snaprebuild("inspect", "dump", path).stderr == ""
    assert "offset-gaps" in snaprebuild("inspect", "dump", "-v", path).stderr


def test_the_delete_horizon_is_the_first_timestamp(tmp_path: Path) -> None:
    """``DefaultRecordBatch.deleteHorizonMs``: with its attribute the base timestamp is it."""
    data = bytearray(batch(0, attributes=0x40, timestamp=5))
    data[35:43] = (9).to_bytes(8, "big")
    _, lines = in_lines(write_segment(tmp_path, data))
    assert [(line["delete_horizon_ms"], line["timestamp"]) for line in of(lines, "batch")] == [(5, 9)]


@pytest.mark.parametrize(("sequence", "delta", "last"), [(-1, 2, -1), (2**31 - 2, 2, 0), (3, -5, 2_147_483_646)])
def test_last_sequences_that_kafka_shows(sequence: int, delta: int, last: int, tmp_path: Path) -> None:
    """Expected values are those that kafka-dump-log 4.3.1 prints of such batches: 32 bits, whatever was damaged."""
    data = bytearray(batch(0, producer_id=5))
    data[23:27], data[53:57] = delta.to_bytes(4, "big", signed=True), sequence.to_bytes(4, "big", signed=True)
    _, lines = in_lines(write_segment(tmp_path, data))
    assert [line["last_sequence"] for line in of(lines, "batch")] == [last]


def test_zeros_behind_the_last_batch_are_a_note(log: Path) -> None:
    size = log.stat().st_size
    log.write_bytes(log.read_bytes() + bytes(5000))
    run, lines = in_lines(log)
    assert run.exit_code == 0
    (finding,), (end,) = of(lines, "finding"), of(lines, "file_end")
    assert (finding["code"], finding["severity"]) == ("zero-filled-tail", "note")
    assert (end["tail"], end["valid_bytes"], end["preallocated_bytes"]) == ("zero_filled", size, 5000)


def test_records_that_do_not_decompress(tmp_path: Path, log: Path) -> None:
    _, lines = in_lines(log)
    compressed = next(line for line in of(lines, "batch") if line["codec"] == "zstd")
    for at in range(61, 70):
        flip(log, compressed["position"] + at, 0xFF)
    _, deep = in_lines(log, "--deep")
    codes = {line["code"]: line for line in of(deep, "finding")}
    assert set(codes) == {"bad-checksum", "unreadable-records"}
    assert codes["unreadable-records"]["position"] == compressed["position"] + 61
    # The batches after it are shown with their records.
    assert max(line["offset"] for line in of(deep, "record")) > compressed["last_offset"]


def test_a_marker_on_which_a_broker_throws(tmp_path: Path) -> None:
    good = marker(0, 7, commit=True)
    path = write_segment(tmp_path, good, batch(1))
    run, lines = in_lines(path)
    assert run.exit_code == 0
    (control,) = of(lines, "control_record")
    assert (control["type"], control["content"]) == ("COMMIT", {"version": 0, "coordinator_epoch": 0, "rest": ""})
    flip(path, len(good) - 7, 0xFF)  # the version in its value becomes negative
    _, lines = in_lines(path)
    assert {line["code"] for line in of(lines, "finding")} == {"bad-checksum", "unreadable-control-record"}
    assert len(of(lines, "batch")) == 2


@pytest.mark.parametrize(
    "name", sorted({path.name for path in KAFKA_FILES if not path.name[0].isdigit()} - {".kafka_cleanshutdown"})
)
def test_small_files_that_do_not_parse(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"version: x\n")
    run, lines = in_lines(path)
    assert run.exit_code == 4
    assert {line["severity"] for line in of(lines, "finding")} == {"damaged"}
    assert "expected" in run.stderr


def test_a_file_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    run, lines = in_lines(tmp_path / "absent.log", LOG)
    assert run.exit_code == 1
    assert [line["code"] for line in of(lines, "finding")] == ["busy-log"]
    assert len(of(lines, "batch")) > 100
    assert snaprebuild("inspect", "dump", tmp_path / "absent.log").exit_code == 2


# --- indexes next to their logs --------------------------------------------------------------------------------------------


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    for ending in ("log", "index", "timeindex", "txnindex"):
        shutil.copy(LOG.with_suffix(f".{ending}"), tmp_path)
    return tmp_path / LOG.name


def test_a_position_in_the_middle_of_a_batch(segment: Path) -> None:
    index = segment.with_suffix(".index")
    flip(index, 8 * 3 + 7)
    run, lines = in_lines(index)
    (finding,) = of(lines, "finding")
    assert (run.exit_code, finding["code"], finding["position"]) == (1, "index-mismatch", 24)
    assert [line["agrees"] for line in of(lines, "offset_index_entry")].index(False) == 3
    assert of(lines, "offset_index_entry")[3]["log_offset"] is None


def test_a_timestamp_that_the_batch_does_not_have(segment: Path) -> None:
    index = segment.with_suffix(".timeindex")
    _, before = in_lines(index)
    flip(index, 7)  # the first timestamp, by a millisecond
    run, lines = in_lines(index)
    (finding,) = of(lines, "finding")
    assert (run.exit_code, finding["code"]) == (1, "index-mismatch")
    first = of(before, "time_index_entry")[0]["timestamp"]
    assert finding["found"] == str(first)
    assert "log timestamp: " in snaprebuild("inspect", "dump", index).stdout


def test_an_aborted_transaction_without_its_marker(segment: Path) -> None:
    _, lines = in_lines(segment.with_suffix(".txnindex"))
    entries = [
        AbortedTransaction(0, line["producer_id"], line["first_offset"], line["last_offset"], line["last_stable_offset"])
        for line in of(lines, "aborted_transaction")
    ]
    wrong = AbortedTransaction(
        0, entries[1].producer_id, entries[1].first_offset, entries[1].last_offset + 1, entries[1].last_stable_offset
    )
    segment.with_suffix(".txnindex").write_bytes(write_transaction_index([entries[0], wrong, *entries[2:]]))
    run, lines = in_lines(segment.with_suffix(".txnindex"))
    assert run.exit_code == 1
    assert [line["agrees"] for line in of(lines, "aborted_transaction")] == [True, False, *[True] * (len(entries) - 2)]


def test_entries_behind_damage_are_not_judged(segment: Path) -> None:
    middle = batch_positions(segment)[len(batch_positions(segment)) // 2]
    flip(segment, middle + 16, 2 ^ 9)
    run, lines = in_lines(segment.with_suffix(".index"))
    assert run.exit_code == 0
    (finding,) = of(lines, "finding")
    assert (finding["code"], finding["severity"]) == ("index-not-compared", "note")
    judged = [line["agrees"] for line in of(lines, "offset_index_entry")]
    assert judged == [True if line["position"] < middle else None for line in of(lines, "offset_index_entry")]
    assert {True, None} == set(judged)
