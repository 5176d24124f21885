"""Damage of any kind in any file: dump reports it or shows what it says, and never fails itself; and what it holds has a bound."""

import io
import json
import shutil
import struct
import tracemalloc
from pathlib import Path

import pytest
from compressed_batches import compressed
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch, batch_positions, marker, write_segment
from manifests import FIXTURES
from memory_peak import measured
from sentences import INVALID_BYTES
from strategies import header_of

from formats import limits
from formats.log.record_batch import Record, RecordHeader, build_record_batch
from formats.partition.file_names import DumpedKind
from snaprebuild.cli.render.dump import JsonLines, TextLines
from snaprebuild.findings import Severity, exit_code_of
from snaprebuild.inspect import dump_log
from snaprebuild.inspect.dump import dump_file
from snaprebuild.inspect.dump_items import Dump, DumpRequest, ItemForm

FILES = sorted(
    {
        next(FIXTURES.rglob(pattern))
        for pattern in ("*.index", "*.timeindex", "*.txnindex", "*.checkpoint", "leader-epoch-checkpoint", "recovery-point*")
    }
    | {
        next(FIXTURES.rglob(pattern))
        for pattern in ("partition.metadata", "meta.properties", ".kafka_cleanshutdown", "quorum-state")
    }
    | {next((FIXTURES / name).rglob("*.log")) for name in ("magic0", "magic1", "kafka27-mixed", "txn-state4")}
    | {max((FIXTURES / "kafka27-mixed").rglob("*.snapshot"))}
)


def lines_of(dump: Dump) -> tuple[str, str]:
    """All lines in both forms."""
    text, objects = io.StringIO(), io.StringIO()
    in_text, in_objects = TextLines(payload=True), JsonLines()
    text.write(in_text.begin(dump))
    objects.write(in_objects.begin(dump))
    for items in dump.items:
        text.write(in_text.items(items))
        objects.write(in_objects.items(items))
    return text.getvalue(), objects.getvalue() + JsonLines().end(dump) + JsonLines().findings(dump.findings)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(FIXTURES)))
def test_any_damage_is_reported_or_shown(path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    directory = tmp_path_factory.mktemp("damaged")
    data = path.read_bytes()[: 1 << 14]
    if path.with_suffix(".log").is_file():
        shutil.copy(path.with_suffix(".log"), directory)
    target = directory / path.name

    @given(
        st.integers(0, max(len(data) - 1, 0)) | st.integers(0, min(120, max(len(data) - 1, 0))),
        st.binary(min_size=1, max_size=9),
        st.integers(0, len(data)) | st.just(len(data)),
        st.none() | st.sampled_from(DumpedKind),
    )
    def any_damage(position: int, put: bytes, size: int, called: DumpedKind | None) -> None:
        """Also where the file is called something else."""
        target.write_bytes((data[:position] + put + data[position + len(put) :])[:size])
        dump = dump_file(str(target), DumpRequest(called, deep=True, payload=True))
        text, objects = lines_of(dump)
        assert all(json.loads(line)["item"] for line in objects.split("\n") if line)
        assert text.replace("\n", "").isprintable()
        assert all(finding.severity is not Severity.STORAGE for finding in dump.findings)
        assert len(dump.findings) == len({finding.code for finding in dump.findings})

    any_damage()


def test_what_is_held_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Twice the log, the same memory: items come block by block and are not kept."""
    path = tmp_path / "00000000000000000000.log"
    one = bytearray(batch(0, payload_bytes=30_000))
    peaks = []
    for batches in (400, 1200):
        with path.open("wb") as out:
            for offset in range(batches):
                one[:8] = offset.to_bytes(8, "big")
                out.write(one)
        tracemalloc.start()
        count = sum(len(items) for items in dump_file(str(path), DumpRequest(deep=True)).items if items.form is ItemForm.RECORD)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == batches
    assert peaks[1] < peaks[0] * 1.1


@pytest.mark.parametrize(
    ("codec", "magic"), [("zstd", 2), *(pytest.param(*each, marks=pytest.mark.full) for each in (("snappy", 2), ("gzip", 1)))]
)
def test_what_is_held_does_not_grow_with_what_a_batch_is_decompressed_to(codec: str, magic: int, tmp_path: Path) -> None:
    """100 MiB: 5 to 7 MiB are held (measured), with snappy 23, because its batch has 5. All at once were 356."""
    path = write_segment(tmp_path, compressed(codec, magic, [bytes(64 << 10)] * 1600)[1])
    with measured() as peak:
        count = 0
        for items in dump_file(str(path), DumpRequest(deep=True)).items:
            count += len(items) if items.form in (ItemForm.RECORD, ItemForm.LEGACY_RECORD) else 0
    assert count == 1600
    assert peak.bytes < 48 << 20


def test_the_range_of_a_log_without_order(tmp_path: Path) -> None:
    path = write_segment(tmp_path, batch(5), batch(50), batch(6), batch(7))
    dump = dump_file(str(path), DumpRequest(offset_from=5, offset_to=7))
    shown = [offset for items in dump.items for offset in items.columns["base_offset"][items.start : items.stop]]
    assert shown == [5, 6, 7]
    assert [finding.code for finding in dump.findings] == ["disordered-offsets", "offset-gaps"]
    assert len(batch_positions(path)) == 4


def test_a_batch_larger_than_the_limit_is_reported_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_segment(tmp_path, batch(0, payload_bytes=500), batch(1))
    monkeypatch.setattr(limits, "DATA_BATCH_BYTES_MAX", 400)
    dump = dump_file(str(path), DumpRequest(deep=True))
    forms = [items.form for items in dump.items]
    assert forms == [ItemForm.BATCH, ItemForm.BATCH, ItemForm.RECORD]
    assert [(finding.code, finding.offset) for finding in dump.findings] == [("over-limit", 0)]


def test_a_file_larger_than_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "leader-epoch-checkpoint"
    with path.open("wb") as file:
        file.truncate(limits.TEXT_FILE_BYTES_MAX + 1)
    dump = dump_file(str(path), DumpRequest())
    assert list(dump.items) == []
    assert [(finding.code, finding.severity) for finding in dump.findings] == [("over-limit", Severity.FINDING)]


@pytest.mark.parametrize("ending", ["snapshot", "index", "log"])
def test_a_broker_removes_a_file_before_its_turn(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"00000000000000000000.{ending}"
    path.touch()
    dump = dump_file(str(path), DumpRequest())
    path.unlink()
    assert list(dump.items) == []
    assert [(finding.code, finding.severity) for finding in dump.findings] == [("busy-log", Severity.NOTE)]
    assert exit_code_of(dump.findings) == 1


@pytest.mark.parametrize("tail", [b"torn", bytes(300)], ids=["torn", "zeros"])
def test_a_broker_appends_before_its_turn(tail: bytes, tmp_path: Path) -> None:
    """Bytes after the last whole batch are counted from the size that was read."""
    path = write_segment(tmp_path, batch(0))
    dump = dump_file(str(path), DumpRequest())
    with path.open("ab") as file:
        file.write(batch(1) + tail)
    assert sum(map(len, dump.items)) == 2
    assert TextLines(payload=False).end(dump) == f"Found {len(tail)} {INVALID_BYTES}{path.name}\n"
    assert dump.preallocated_bytes == (None if any(tail) else len(tail))


def test_a_gap_between_two_blocks_of_the_reader(tmp_path: Path) -> None:
    first = batch(5, payload_bytes=limits.HEADER_BLOCK_BYTES)
    path = write_segment(tmp_path, first, batch(9, payload_bytes=limits.HEADER_BLOCK_BYTES))
    dump = dump_file(str(path), DumpRequest())
    assert [len(items) for items in dump.items] == [1, 1], "each in a block of its own"
    assert [(finding.code, finding.offset) for finding in dump.findings] == [("offset-gaps", 9)]
    assert dump.findings[0].message == f"byte {len(first)}: offset of a batch: expected 6, found 9"


def flipped(data: bytes, at: int, bits: int) -> bytes:
    return data[:at] + bytes((data[at] ^ bits,)) + data[at + 1 :]


def test_markers_of_coordinators_are_shown_as_the_grammar_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = marker(0, 7, commit=False, coordinator_epoch=-1)
    markers = [flipped(whole, 61 + at, 1 << bit) for at in range(len(whole) - 61) for bit in (0, 1, 7)]  # each byte of its record
    markers += [
        flipped(whole, at, bit) for at, bit in ((53, 0x80), (22, 8), (22, 1), (26, 1), (42, 0x80), (56, 1), (57, 0x80), (60, 3))
    ]
    log = b"".join(
        batch(2 * number, producer_id=3) + struct.pack(">q", 2 * number + 1) + each[8:]
        for number, each in enumerate([whole, *markers, whole])
    )
    path = write_segment(tmp_path, log)
    request = DumpRequest(offset_from=1)
    at_once, taken = dump_log._usual_markers, []

    def counted(*arguments: object) -> object:
        found = at_once(*arguments)  # type: ignore[arg-type]
        taken.append(len(found.numbers) if found is not None else 0)
        return found

    monkeypatch.setattr(dump_log, "_usual_markers", counted)
    quick = lines_of(dump_file(str(path), request))
    monkeypatch.setattr(dump_log, "_usual_markers", lambda *_: None)
    assert quick == lines_of(dump_file(str(path), request))
    assert 10 < sum(taken) < len(markers) - 10
    assert all(word in quick[0] for word in ("LogAppendTime", "ABORT", "COMMIT"))


@pytest.mark.parametrize("header_count", [0, 2])
def test_lines_of_columns_are_those_of_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, header_count: int) -> None:
    """The speed path of batches with many records, of which a range of offsets is shown."""
    headers = (RecordHeader("h\u00e9\n".encode(), b"v"), RecordHeader(b"", None))[:header_count]
    made = [Record(number, number, None if number % 3 else b"k" * number, b"v", headers) for number in range(100)]
    header = header_of(7, base_sequence=2**31 - 5, record_count=len(made), last_offset_delta=len(made) - 1)
    path = write_segment(tmp_path, build_record_batch(header, made))
    request = DumpRequest(deep=True, offset_from=8, offset_to=105)
    fast = dump_file(str(path), request)
    forms = {items.form for items in fast.items}
    assert forms == {ItemForm.BATCH, ItemForm.RECORD if header_count else ItemForm.SIZED_RECORD}
    found = lines_of(dump_file(str(path), request))
    monkeypatch.setattr("formats.log.records.COLUMN_ROWS_MIN", 1000)
    assert found == lines_of(dump_file(str(path), request))
    assert found[0].count("| offset") == 98
