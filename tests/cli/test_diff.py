"""``diff`` as a user runs it: two snapshots are maps of producers, and every way in which they differ is reported."""

import struct
from collections.abc import Iterable
from pathlib import Path

import crc32c
import pytest
from command import in_json, snaprebuild
from log_dirs import cut, flip, snapshot_bytes, snapshot_name, truth
from manifests import FIXTURES
from msgspec.structs import replace
from sentences import OPEN_FROM, RETRY_OF_SEQUENCE

from formats.partition.producer_snapshot import ProducerEntry

IDLE = ProducerEntry(1, 0, 4, 9, 0, 1_000, -1, -1)
OPEN = ProducerEntry(2, 3, 7, 19, 2, 5_000, 0, 17)
ENDED = ProducerEntry(3, 1, -1, -1, 0, 6_000, 2, -1)
ALL = (IDLE, OPEN, ENDED)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a.snapshot", tmp_path / "b.snapshot"


def write(pair: tuple[Path, Path], a: Iterable[ProducerEntry], b: Iterable[ProducerEntry]) -> tuple[Path, Path]:
    pair[0].write_bytes(snapshot_bytes(a))
    pair[1].write_bytes(snapshot_bytes(b))
    return pair


def test_equal_bytes(pair: tuple[Path, Path]) -> None:
    run = in_json("inspect diff", *write(pair, ALL, ALL))
    assert (run.exit_code, run.document["status"]) == (0, "equal_bytes")
    assert run.document["a"]["entries"] == run.document["b"]["entries"] == 3
    assert snaprebuild("inspect", "diff", *pair).stdout.startswith("equal bytes\n")


def test_the_order_means_nothing(pair: tuple[Path, Path]) -> None:
    run = in_json("inspect diff", *write(pair, ALL, ALL[::-1]))
    assert (run.exit_code, run.document["status"], run.document["entries"]) == (0, "equal", [])


def test_what_stands_behind_the_entries_means_nothing(pair: tuple[Path, Path]) -> None:
    a, b = write(pair, ALL, ALL)
    checked = a.read_bytes()[6:] + b"more"
    b.write_bytes(struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked)
    assert in_json("inspect diff", a, b).document["status"] == "equal"


def test_each_kind_of_difference(pair: tuple[Path, Path]) -> None:
    newer = replace(ENDED, epoch=2, timestamp=7_000)
    other = ProducerEntry(9, 0, 0, 3, 0, 8_000, -1, -1)
    run = in_json("inspect diff", *write(pair, ALL, (IDLE, newer, other)))
    assert (run.exit_code, run.document["status"]) == (1, "different")
    assert run.document["totals"] == {"only_in_a": 1, "only_in_b": 1, "changed": 1}
    entries = {entry["producer_id"]: entry for entry in run.document["entries"]}
    # The transaction comes first, whatever its id.
    assert list(entries) == [2, 3, 9]
    assert entries[2]["kind"] == "only_in_a"
    assert entries[2]["a"] == {
        "epoch": 3,
        "last_sequence": 7,
        "last_offset": 19,
        "offset_delta": 2,
        "timestamp": 5_000,
        "coordinator_epoch": 0,
        "current_txn_first_offset": 17,
    }
    assert entries[2]["b"] == {}
    assert f"{OPEN_FROM}17, is forgotten" in entries[2]["consequence"]
    assert (entries[3]["a"], entries[3]["b"]) == ({"epoch": 1, "timestamp": 6_000}, {"epoch": 2, "timestamp": 7_000})
    assert "fenced epoch" in entries[3]["consequence"]
    assert entries[9]["kind"] == "only_in_b"
    assert "never wrote here" in entries[9]["consequence"]
    text = snaprebuild("inspect", "diff", *pair)
    assert text.exit_code == 1
    lines = [" ".join(line.split()) for line in text.stdout.splitlines()]
    assert {"epoch 1 -> 2", "timestamp 6000 -> 7000"} <= set(lines), "one field a line"
    assert lines[0] == "different: 1 only in A, 1 only in B, 1 changed"
    assert "snapshots-differ" not in text.stderr, "stdout says so"


@pytest.mark.parametrize(
    ("field", "value", "cost"),
    [
        ("epoch", 9, "fenced epoch"),
        ("last_sequence", 9, "next batch, sequence 8"),
        ("last_offset", 21, "acknowledged with a wrong offset"),
        ("offset_delta", 1, "newest batch is refused (OutOfOrderSequence)"),
        ("timestamp", 9, "expires too early or too late"),
        ("coordinator_epoch", 9, "old transaction coordinator"),
        ("current_txn_first_offset", -1, "open from 17, is forgotten"),
        ("current_txn_first_offset", 18, "last stable offset is wrong"),
    ],
)
def test_every_field_counts(pair: tuple[Path, Path], field: str, value: int, cost: str) -> None:
    run = in_json("inspect diff", *write(pair, ALL, (IDLE, replace(OPEN, **{field: value}), ENDED)))
    (entry,) = run.document["entries"]
    assert (entry["producer_id"], entry["kind"]) == (2, "changed")
    assert (entry["a"], entry["b"]) == ({field: getattr(OPEN, field)}, {field: value})
    assert cost in entry["consequence"]


@pytest.mark.parametrize(
    ("right", "wrong", "cost"),
    [
        # Of the newest batch only its offsets and its length are wrong: its retry is what suffers.
        (OPEN, replace(OPEN, last_offset=21, offset_delta=1), "a retry of its newest batch is refused"),
        (OPEN, replace(OPEN, last_offset=21, last_sequence=9), "next batch, sequence 8, is refused"),
        (replace(OPEN, last_sequence=2**31 - 1), OPEN, "next batch, sequence 0, is refused"),
        (ENDED, None, "older epochs are not fenced"),
        (IDLE, None, f"{RETRY_OF_SEQUENCE}4 or older"),
    ],
)
def test_the_cost_of_batches(pair: tuple[Path, Path], right: ProducerEntry, wrong: ProducerEntry | None, cost: str) -> None:
    run = in_json("inspect diff", *write(pair, [right], [] if wrong is None else [wrong]))
    (entry,) = run.document["entries"]
    assert cost in entry["consequence"]
    assert "-1" not in entry["consequence"]


@pytest.mark.parametrize(
    ("options", "status", "expired"),
    [
        ((), "different", None),
        (("--as-of", "11000", "--expiration-ms", "10001"), "different", 0),
        (("--as-of", "11000", "--expiration-ms", "10000"), "equal_after_expiry", 1),  # equality expires
        (("--as-of", "1970-01-01T00:00:11Z", "--expiration-ms", "10000"), "equal_after_expiry", 1),
        (("--expiration-ms", "10000"), "equal_after_expiry", 2),  # now: the open transaction stays
    ],
)
def test_expiry(pair: tuple[Path, Path], options: tuple[str, ...], status: str, expired: int | None) -> None:
    run = in_json("inspect diff", *write(pair, ALL, (OPEN, ENDED)), *options)
    assert run.document["status"] == status
    assert run.document["a"]["expired_entries"] == expired
    assert run.exit_code == (1 if status == "different" else 0)


def test_many_are_counted_and_not_all_listed(pair: tuple[Path, Path]) -> None:
    many = [ProducerEntry(each, 0, 1, each, 0, 1_000, -1, -1) for each in range(3_000)]
    last = replace(many[-1], current_txn_first_offset=2_999)
    run = in_json("inspect diff", *write(pair, [*many[:-1], last], []))
    assert run.document["totals"]["only_in_a"] == 3_000
    assert (len(run.document["entries"]), run.document["entries_not_listed"]) == (1_000, 2_000)
    assert run.document["entries"][0]["producer_id"] == 2_999
    assert "and 2,990 more" in snaprebuild("inspect", "diff", *pair).stdout


def test_snapshots_of_brokers_differ_by_what_the_log_says() -> None:
    partition = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
    run = in_json("inspect diff", partition / snapshot_name(7637), partition / snapshot_name(8231))
    before, after = (truth("kafka27-mixed", "mixed-0")[offset] for offset in (7637, 8231))
    differing = {entry.producer_id for entry in before ^ after}
    assert {entry["producer_id"] for entry in run.document["entries"]} == differing
    assert (run.document["a"]["offset"], run.document["b"]["offset"]) == (7637, 8231)
    text = snaprebuild("inspect", "diff", partition / snapshot_name(7637), partition / snapshot_name(8231))
    assert "A is the state at offset 7637, B at 8231" in text.text


# --- damage ----------------------------------------------------------------------------------------------------------------


def test_a_damaged_side(pair: tuple[Path, Path]) -> None:
    a, b = write(pair, ALL, ALL)
    flip(b, 20)
    run = in_json("inspect diff", a, b)
    assert (run.exit_code, run.document["status"]) == (4, "unreadable")
    (finding,) = run.document["findings"]
    assert (finding["code"], finding["path"]) == ("damaged-file", str(b))
    assert "byte 2: checksum of a snapshot: expected 0x" in finding["message"]
    cut(a, 50)
    assert len(in_json("inspect diff", a, b).document["findings"]) == 2


def test_a_producer_that_stands_twice(pair: tuple[Path, Path]) -> None:
    run = in_json("inspect diff", *write(pair, ALL, (*ALL, IDLE)))
    assert (run.exit_code, list(run.codes)) == (4, ["impossible-entries"])


def test_a_side_that_no_broker_could_load(pair: tuple[Path, Path]) -> None:
    """Larger than an array of Java: damage, however much is read."""
    write(pair, ALL, ALL)
    with pair[1].open("r+b") as file:
        file.truncate(46 * 50_000_000 + 11)
    run = in_json("inspect diff", *pair)
    assert run.exit_code == 4
    assert run.document["status"] == "unreadable"
    assert list(run.codes) == ["damaged-file"]
    assert "2300000011" in run.messages("damaged-file")
