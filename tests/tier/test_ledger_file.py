"""The ledger of ``tier audit`` as a file: summaries as bytes and back, and what is wrong with a bad file, by its place."""

import json
from pathlib import Path

import numpy as np
import pytest
from command import in_json
from documents import validator_of
from generated_stores import generated_store
from manifests import AIVEN, LONG_AGO
from tiers import id_text

from formats.errors import BadMagicError
from formats.log.batch_headers import BytesSegment, Tail, TailKind
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.published import line_of
from snaprebuild.replay.segment_summary import SegmentSummary, summarise_pieces
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.storage.store import FileIdentity
from snaprebuild.tier.ledger.kept_summary import kept_bytes, kept_pieces
from snaprebuild.tier.ledger.ledger_file import SCHEMA, AuditLedger, CopyKey, SyncLine

KEY = CopyKey(id_text(bytes(16)), "0" * 32)
STORE = "/store"


def summaries(seed: int, cuts: tuple[int, ...] = ()) -> tuple[SegmentSummary, ...]:
    store = generated_store(seed, has_transactions=True)
    return summarise_pieces(BytesSegment(store.data(1)), store.bases[1], cuts, is_last=False, with_first_events=True)


def plain(value: object) -> object:
    """A value that can be compared: arrays with their types."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if isinstance(value, BadMagicError):
        return type(value), str(value), value.position
    fields = getattr(value, "__struct_fields__", None)
    return value if fields is None else [(name, plain(getattr(value, name))) for name in fields]


@pytest.mark.parametrize("seed", range(4))
def test_summaries_as_bytes_and_back(seed: int) -> None:
    pieces = summaries(seed)
    store = generated_store(seed, has_transactions=True)
    cut = summaries(seed, (store.segments[1][2].header.base_offset,))
    assert len(cut) == 2
    for each in (pieces, cut):
        assert [plain(piece) for piece in kept_pieces(kept_bytes(each))] == [plain(piece) for piece in each]


def test_the_fault_at_the_end_of_a_segment_is_kept() -> None:
    (piece,) = summaries(1)
    error = BadMagicError("magic", file="a.log", position=7, expected="0 to 2", found=9)
    damaged = SegmentSummary(
        base_offset=piece.base_offset,
        size_bytes=piece.size_bytes,
        read_bytes=1,
        contents=piece.contents,
        tail=Tail(TailKind.CORRUPT, 7, error),
    )
    (again,) = kept_pieces(kept_bytes((damaged,)))
    assert plain(again) == plain(damaged)


@pytest.mark.parametrize("data", [b"", b"x", kept_bytes(())[:-3]])
def test_other_bytes_are_no_summaries(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        kept_pieces(data)


def read_task(*, cuts: tuple[int, ...] = (), is_last: bool = False, until: int | None = None) -> ReadTask:
    identity = FileIdentity(1, 1, 1)
    return ReadTask("/store/a.log", None, 0, identity, check_crc=True, cuts=cuts, is_last=is_last, until=until)


def test_a_segment_that_is_not_the_last_any_more_is_not_read_again(tmp_path: Path) -> None:
    pieces = summaries(1)
    end = pieces[-1].facts.next_offset
    with AuditLedger.open(str(tmp_path / "ledger"), STORE) as ledger:
        ledger.keep_segment(KEY, read_task(cuts=(end,), is_last=True), pieces)
        assert ledger.pieces(KEY, read_task()) is not None
        assert ledger.pieces(KEY, read_task(cuts=(end - 1,))) is None
        assert ledger.pieces(KEY, read_task(until=end - 1)) is None
        assert ledger.pieces(CopyKey(KEY.segment_id, "1" * 32), read_task()) is None


def test_summaries_of_another_release_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with AuditLedger.open(str(path), STORE) as ledger:
        ledger.keep_segment(KEY, read_task(), summaries(1))
    header, line, _ = path.read_text().splitlines()
    path.write_text(f"{header}\n{json.dumps({**json.loads(line), 'snaprebuild': '0.0.1'})}\n")
    with AuditLedger.open(str(path), STORE) as ledger:
        assert ledger.pieces(KEY, read_task()) is None


HEADER = {"schema": SCHEMA, "snaprebuild": "1", "began_ms": 1, "location": STORE, "key_prefix": ""}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "is no ledger of tier audit: expected snaprebuild.audit-ledger/1, found another file"),
        ("{}\n", "found another file"),
        ('{"schema":"snaprebuild.receipt/3"}\n', "found 'snaprebuild.receipt/3'"),
        ('{"schema":"snaprebuild.audit-ledger/9"}\n', "expected snaprebuild.audit-ledger/1, found 'snaprebuild.audit-ledger/9'"),
        (f'{{"schema":"{SCHEMA}"}}\n', "line 1"),
        (json.dumps({**HEADER, "location": "/other"}) + "\n", "expected /store, found '/other'"),
        (json.dumps({**HEADER, "key_prefix": "b/"}) + "\n", "is the ledger of another key_prefix: expected '', found 'b/'"),
        (json.dumps(HEADER) + "\nx\n", "line 2"),
        (json.dumps(HEADER) + '\n{"step":"round","began_ms":-1}\n', "line 2"),
        (json.dumps(HEADER) + '\n{"step":"round","began_ms":1}\n{"step":"copy"}\n', "line 3"),
    ],
)
def test_a_bad_ledger_is_an_error_and_stays_as_it_is(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "ledger"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        AuditLedger.open(str(path), STORE)
    assert expected in error.value.message
    assert error.value.path == str(path)
    assert path.read_text() == text


def test_a_link_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    AuditLedger.open(str(path), STORE).close()
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(ReadFailedError) as error:
        AuditLedger.open(str(link), STORE)
    assert error.value.message == "is a symbolic link, which is not followed: name the file itself"
    assert error.value.path == str(link)


def test_a_changed_byte_in_what_was_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with AuditLedger.open(str(path), STORE) as ledger:
        ledger.keep_range(KEY, "snapshot:all", 4, b"good")
    path.write_text(path.read_text().replace("Z29vZA==", "Z29vZQ=="))
    with pytest.raises(UsageError) as error:
        AuditLedger.open(str(path), STORE)
    assert "line 2" in error.value.message


def with_lost_bytes(data: bytes, line: int) -> bytes:
    """The file after a power failure that lost the bytes of a line, and kept those of later ones: the line is filled with zeros."""
    lines = data.splitlines(keepends=True)
    lines[line] = bytes(len(lines[line]))
    return b"".join(lines)


def test_lines_that_a_power_failure_took_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    keys = [CopyKey(KEY.segment_id, f"{number}" * 32) for number in range(3)]
    with AuditLedger.open(str(path), STORE) as ledger:
        for key in keys:
            ledger.keep_range(key, "snapshot:all", 4, b"good")
        running = path.read_bytes()  # of a run that has synced nothing but the header
    path.write_bytes(with_lost_bytes(running, 2))
    with AuditLedger.open(str(path), STORE) as ledger:
        assert [ledger.range(key, "snapshot:all") is not None for key in keys] == [True, False, False]
        for key in keys[1:]:
            ledger.keep_range(key, "snapshot:all", 4, b"good")
    with AuditLedger.open(str(path), STORE) as ledger:
        assert all(ledger.range(key, "snapshot:all") is not None for key in keys)


def check_zeros_in_line_3_are_damage(path: Path) -> None:
    """Zeros in its third line: the ledger is refused, and left as it is."""
    damaged = with_lost_bytes(path.read_bytes(), 2)
    path.write_bytes(damaged)
    with pytest.raises(UsageError) as error:
        AuditLedger.open(str(path), STORE)
    assert "line 3" in error.value.message
    assert path.read_bytes() == damaged


def test_zeros_in_lines_that_were_on_the_device_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with AuditLedger.open(str(path), STORE) as ledger:
        for number in range(3):
            ledger.keep_range(CopyKey(KEY.segment_id, f"{number}" * 32), "snapshot:all", 4, b"good")
    check_zeros_in_line_3_are_damage(path)


def test_zeros_in_a_ledger_that_was_written_anew_are_damage(tmp_path: Path) -> None:
    """Written anew, the file is on the device before it has its name."""
    path = tmp_path / "ledger"
    keys = [CopyKey(KEY.segment_id, f"{number}" * 32) for number in range(9)]
    with AuditLedger.open(str(path), STORE) as ledger:
        for key in keys:
            ledger.keep_range(key, "snapshot:all", 4, b"good")
        ledger.drop_all_but(keys[:3])
    lines = path.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1]) == {"step": "sync", "size_bytes": sum(len(line) for line in lines[:-1])}
    check_zeros_in_line_3_are_damage(path)


def test_half_a_line_of_a_killed_run_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    with AuditLedger.open(str(path), STORE) as ledger:
        ledger.keep_range(KEY, "snapshot:all", 4, b"good")
        ledger.keep_range(KEY, "snapshot:0+4", 4, b"good")
        running = path.read_bytes()
    path.write_bytes(running[:-20])
    with AuditLedger.open(str(path), STORE) as ledger:
        assert [ledger.range(KEY, of) is not None for of in ("snapshot:all", "snapshot:0+4")] == [True, False]
        assert path.read_bytes() == running[: running[:-1].rindex(b"\n") + 1]


def test_each_line_of_a_real_ledger_is_valid_by_the_schema(tmp_path: Path) -> None:
    """Three runs: the first is stopped by its limit, the last begins a round."""
    ledger = tmp_path / "ledger"
    words = ("tier audit", AIVEN / "diseased" / "store", "--ledger", ledger, *LONG_AGO)
    for limit in (("--set", "max_read_bytes=200000"), (), ()):
        in_json(*words, *limit)
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert {line.get("step") for line in lines} - {"sync"} == {None, "segment", "range", "copy", "round"}
    lines.append(json.loads(line_of(SyncLine(size_bytes=1))))  # a run of some seconds writes it
    validator = validator_of("audit-ledger")
    for line in lines:
        validator.validate(line)
    for line in ({**lines[0], "more": 1}, {**lines[1], "step": "other"}, {name: lines[0][name] for name in list(lines[0])[1:]}):
        assert not validator.is_valid(line)
