"""Statistics in columns against a count batch by batch: generated logs, however they are cut, and what survives of broken ones."""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from counted_by_hand import over_partitions, partition_of, totals_of, without
from hypothesis import given
from hypothesis import strategies as st
from log_dirs import batch, batch_positions, write_partition
from manifests import FIXTURES
from strategies import GeneratedLog, block_sizes, logs

from formats.log.batch_headers import BytesSegment
from snaprebuild.cli.output import json_text
from snaprebuild.cli.render.stats import StatsView
from snaprebuild.documents.envelope import members_of_document
from snaprebuild.findings import Severity
from snaprebuild.inspect import stats as stats_module
from snaprebuild.inspect.segment_statistics import BatchFacts, StatisticsAnalysis, statistics_of
from snaprebuild.inspect.stats import collect_statistics
from snaprebuild.replay.segment_summary import SegmentSummary, summarise_pieces
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

CLOCKS = st.sampled_from((Clock(2_000, 1_000), Clock(1_000, 1), Clock(1 << 41, 86_400_000), Clock(0, 2**63 - 1)))


def document_of(root: Path, clock: Clock, **options: Any) -> dict[str, Any]:
    result = collect_statistics(open_source([str(root)]), Run(clock=clock), **{"top": 100, **options})
    view = StatsView(result, 0.0, top=10, all_segments=False)
    return json.loads("".join(json_text(members_of_document(view.document(), view.findings))))  # type: ignore[no-any-return]


def segments_of(log: GeneratedLog, cuts: Sequence[int]) -> dict[int, bytes]:
    parts = [part for part in log.segments(cuts) if part.batches]
    return {part.batches[0].header.base_offset: part.data for part in parts}


cut_logs = logs(min_batches=1).flatmap(
    lambda log: st.lists(st.integers(0, len(log.batches)), max_size=4).map(lambda cuts: segments_of(log, sorted(cuts)))
)


@given(st.lists(cut_logs, min_size=1, max_size=4), CLOCKS)
def test_generated_partitions(partitions: list[dict[int, bytes]], clock: Clock) -> None:
    """Two topics of up to two partitions, in which the same producers write."""
    names = ("a-0", "a-1", "b-0", "b-1")[: len(partitions)]
    with tempfile.TemporaryDirectory() as place:
        for name, segments in zip(names, partitions, strict=True):
            write_partition(Path(place) / name, segments)
        document = document_of(Path(place), clock)
    hand = {
        name: partition_of(sorted(segments.items()), clock.as_of_ms, clock.expiration_ms)
        for name, segments in zip(names, partitions, strict=True)
    }
    moment = clock.as_of_ms, clock.expiration_ms
    assert without(document["totals"], "read_bytes") == totals_of(list(hand.values()), *moment)
    assert {each["topic"]: without(each["totals"], "read_bytes") for each in document["topics"]} == {
        topic: totals_of([each for name, each in hand.items() if name.startswith(topic)], *moment)
        for topic in {name[0] for name in names}
    }
    for each in document["partitions"]:
        expected = hand[each["topic_partition"]]
        assert without(each["totals"], "read_bytes") == totals_of([expected], *moment)
        assert each["segments"] == expected.segments
    rows = over_partitions(list(hand.values())).values()
    assert document["producers"] == sorted(rows, key=lambda row: (-row["batches"], row["producer_id"]))


@given(logs(max_batches=30), block_sizes, st.lists(st.integers(0, 60), unique=True, max_size=3).map(sorted))
def test_blocks_and_pieces_add_up(log: GeneratedLog, block_bytes: int, cuts: list[int]) -> None:
    """However a segment is read and cut, its pieces together are what all its batches are."""
    base = log.batches[0].header.base_offset if log.batches else 0
    at = [base + cut for cut in cuts if cut]
    pieces = summarise_pieces(
        BytesSegment(log.data), base, at, is_last=True, block_bytes=block_bytes, extras=[StatisticsAnalysis()], check_crc=False
    )
    assert all((piece.contents.extras == ()) is (piece.facts.batches == 0) for piece in pieces)
    statistics = [statistics_of(piece.contents) for piece in pieces]
    total = statistics[0].batches
    for each in statistics[1:]:
        total = total.plus(each.batches)
    hand = totals_of([partition_of([(base, log.data)], 0, 1)], 0, 1)
    facts = BatchFacts.of(total)
    assert (facts.batches, facts.records, facts.size_bytes) == (hand["batches"], hand["records"], len(log.data))
    assert (facts.data.transactional, facts.data.idempotent, facts.data.without_producer) == tuple(hand["data_batches"].values())
    assert facts.control == hand["control_batches"]
    sizes = hand["batch_bytes"]
    assert facts.median_range == (None if sizes["median_from"] is None else (sizes["median_from"], sizes["median_below"]))
    assert facts.sizes == {each["from_bytes"].bit_length() - 1: each["batches"] for each in sizes["histogram"]}
    smallest, largest = total.size_min_bytes, total.size_max_bytes
    assert (smallest or None, largest or None) == (sizes["min"], sizes["max"])


def test_no_one_who_does_not_ask_gets_statistics() -> None:
    (whole,) = summarise_pieces(BytesSegment(batch(0, producer_id=7)), 0, (), is_last=True)
    assert whole.contents.extras == ()


def test_only_the_largest_partitions_keep_their_segments(tmp_path: Path) -> None:
    """Among equal ones the first is kept; only this many producers are named."""
    for number, count in enumerate((1, 3, 2, 3)):
        data = b"".join(batch(offset, producer_id=number) for offset in range(count))
        write_partition(tmp_path / f"t-{number}", {0: data})
    document = document_of(tmp_path, Clock(2_000, 1_000), top=2)
    assert [(each["topic_partition"], each["segments"] is not None) for each in document["partitions"]] == [
        ("t-1", True),
        ("t-3", True),
        ("t-2", False),
        ("t-0", False),
    ]
    assert [(each["producer_id"], each["batches"]) for each in document["producers"]] == [(1, 3), (3, 3)]
    assert document["totals"]["producers"]["seen"] == 4
    (kept,) = [each for each in document_of(tmp_path, Clock(2_000, 1_000), top=1)["partitions"] if each["segments"] is not None]
    assert kept["topic_partition"] == "t-1"


def test_expirations_to_the_millisecond(tmp_path: Path) -> None:
    """At an age that equals the expiration a producer is gone; an open transaction stays, however old."""
    day = 86_400_000
    data = (
        batch(0, producer_id=1, timestamp=0)
        + batch(1, producer_id=2, timestamp=1)
        + batch(2, producer_id=3, timestamp=0, attributes=0x10)
    )
    write_partition(tmp_path / "t-0", {0: data})
    kept = {
        each["expiration_ms"]: each["entries"] for each in document_of(tmp_path, Clock(day, day + 1))["totals"]["by_expiration"]
    }
    assert kept == {3_600_000: 1, 6 * 3_600_000: 1, day: 2, day + 1: 3, 7 * day: 3}


def test_damage_ends_nothing(tmp_path: Path) -> None:
    """A segment that breaks in the middle counts up to there, and the next one counts whole."""
    broken = batch(0, producer_id=7) + batch(1, producer_id=8)[:-3]
    torn = batch(2, producer_id=9) + batch(3, producer_id=9)[:20]
    write_partition(tmp_path / "t-0", {0: broken, 2: torn})
    result = collect_statistics(open_source([str(tmp_path)]), Run(clock=Clock(2_000, 10_000)), top=1)
    found = [(each.code, each.severity, each.offset) for each in result.findings]
    assert found == [("damaged-segment", Severity.DAMAGED, 1), ("torn-tail", Severity.NOTE, 3)]
    assert (result.total.producers.seen, result.total.batch_count, result.total.segments) == (2, 2, 2)


SEGMENT = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0" / "00000000000000005821.log"
STARTS = batch_positions(SEGMENT)

damages = st.tuples(
    st.sampled_from(STARTS),
    st.integers(0, 80),
    st.sampled_from(("flip", "cut", "zero", "junk", "insert", "remove")),
    st.binary(min_size=1),
)


@given(damages)
def test_whatever_is_broken_the_rest_is_counted(damage: tuple[int, int, str, bytes]) -> None:
    """The numbers are those of the grammar, batch by batch; nothing throws."""
    start, within, kind, junk = damage
    data, at = bytearray(SEGMENT.read_bytes()), start + within
    if kind == "flip":
        data[at] ^= 1 << junk[0] % 8
    elif kind == "cut":
        del data[at:]
    elif kind == "zero":
        data[at:] = bytes(len(data) - at)
    elif kind == "remove":
        del data[at : at + len(junk)]
    else:
        data[at : at + (len(junk) if kind == "junk" else 0)] = junk
    clock = Clock(1_795_262_000_000, 86_400_000)
    segments = {5821: bytes(data), 6390: (SEGMENT.parent / "00000000000000006390.log").read_bytes()}
    with tempfile.TemporaryDirectory() as place:
        write_partition(Path(place) / "t-0", segments)
        document = document_of(Path(place), clock)
    expected = partition_of(segments.items(), clock.as_of_ms, clock.expiration_ms)
    assert document["partitions"][0]["segments"] == expected.segments
    assert without(document["totals"], "read_bytes") == totals_of([expected], clock.as_of_ms, clock.expiration_ms)
    is_whole = sum(header.size_bytes for header in expected.headers) == expected.size_bytes
    assert (document["exit_code"] == 0) <= is_whole


def test_what_no_one_foresaw_costs_one_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        write_partition(tmp_path / f"t-{number}", {0: batch(0, producer_id=number)})
    take = stats_module._StatsTask.take

    def fails(work: stats_module._StatsTask, summary: SegmentSummary) -> bool:
        if work._place == 1:
            raise MemoryError
        return take(work, summary)

    monkeypatch.setattr(stats_module._StatsTask, "take", fails)
    result = collect_statistics(open_source([str(tmp_path)]), Run(clock=Clock(2_000, 10_000)), top=1)
    assert [each.code for each in result.findings] == ["out-of-memory"]
    assert result.total.producers.seen == result.topics["t"].producers.seen == 2


def test_a_sum_that_fails_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the end of a partition is what fails: its finding is there, and its topic is counted without it."""
    for number in range(2):
        write_partition(tmp_path / f"t-{number}", {0: batch(0, producer_id=number)})
    whole = stats_module._whole

    def fails(*arguments: Any) -> Any:
        made = whole(*arguments)
        if 0 in made.key:
            raise MemoryError
        return made

    monkeypatch.setattr(stats_module, "_whole", fails)
    result = collect_statistics(open_source([str(tmp_path)]), Run(clock=Clock(2_000, 10_000)), top=1)
    assert [each.code for each in result.findings] == ["out-of-memory"]
    assert result.total.producers.seen == result.topics["t"].producers.seen == 1
