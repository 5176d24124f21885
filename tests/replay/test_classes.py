"""The class of a replay by its facts, one fact after the other."""

import pytest
from msgspec.structs import replace
from segment_summaries import summarise_segment
from sentences import CHECKSUM_DIFFERS, NOT_ON_DISK
from simulated_broker import Client, idempotent_log
from strategies import CONTROL, LogBatch, batch_of, header_of, message_of

from formats.log.batch_headers import BytesSegment, TailKind
from snaprebuild.replay.classes import REASONS_LISTED_MAX, Judgement, ReplayRecord, SnapshotClass
from snaprebuild.replay.segment_effect import IDENTITY, RunningEffect, SegmentEffect, compose
from snaprebuild.replay.segment_summary import SegmentSummary


def with_facts(summary: SegmentSummary, **facts: int) -> SegmentSummary:
    return replace(summary, contents=replace(summary.contents, facts=replace(summary.facts, **facts)))


def summary_of(base_offset: int, *batches: LogBatch, tail: bytes = b"", damage: int | None = None) -> SegmentSummary:
    data = bytearray(b"".join(batch.data for batch in batches) + tail)
    if damage is not None:
        data[damage] ^= 1
    return summarise_segment(BytesSegment(bytes(data)), base_offset)


def plain(offset: int, count: int = 1) -> LogBatch:
    return batch_of(header_of(offset, last_offset_delta=count - 1, record_count=count), b"")


def record_of(*summaries: SegmentSummary, follow: int | None = None) -> ReplayRecord:
    """The record of contiguous segments. The last one is the last of the log unless ``follow`` is its successor."""
    record = ReplayRecord()
    bases = [*(summary.base_offset for summary in summaries[1:]), follow]
    for summary, following in zip(summaries, bases, strict=True):
        record.take(summary, is_last=following is None, path=f"{summary.base_offset}.log", following=following)
    return record


def judged(record: ReplayRecord, state: SegmentEffect = IDENTITY, *, zero: bool = True, base: bool = False) -> Judgement:
    return record.evidence().judge(RunningEffect(state), starts_at_zero=zero, has_trusted_base=base)


@pytest.mark.parametrize(
    ("zero", "base", "klass"),
    [(True, False, SnapshotClass.EXACT), (False, True, SnapshotClass.EXACT), (False, False, SnapshotClass.EXACT_FROM_LOG_START)],
)
def test_whole_logs(zero: bool, base: bool, klass: SnapshotClass) -> None:
    record = record_of(summary_of(0, plain(0, 3), plain(3)), summary_of(4, plain(4)))
    judgement = judged(record, zero=zero, base=base)
    assert judgement.snapshot_class is klass
    assert len(judgement.reasons) == 1
    assert (record.damage, record.unsound_reasons, record.notes, record.next_offset) == (None, [], [], 5)


def test_which_classes_may_go_in_place() -> None:
    assert {klass for klass in SnapshotClass if not klass.is_allowed_in_place} == {SnapshotClass.UNPROVEN, SnapshotClass.UNSOUND}


def marker(offset: int, count: int) -> LogBatch:
    header = header_of(offset, attributes=CONTROL, producer_id=-1, record_count=count)
    return batch_of(header, b"")


@pytest.mark.parametrize(
    ("summaries", "reason"),
    [
        ([summary_of(0, plain(0), plain(2))], f"1 offsets between 0 and 3 {NOT_ON_DISK}"),
        ([summary_of(0, plain(1))], f"1 offsets between 0 and 2 {NOT_ON_DISK}"),
        ([summary_of(0, plain(0)), summary_of(4, plain(5))], f"3 offsets between 1 and 4 {NOT_ON_DISK}"),
        ([summary_of(0, plain(0)), summary_of(4)], f"3 offsets between 1 and 4 {NOT_ON_DISK}"),
        (
            [summary_of(0, batch_of(header_of(0, last_offset_delta=2, record_count=2), b""))],
            "batches that lost records: 1; markers that are gone: 0",
        ),
        ([summary_of(0, marker(0, 0))], "batches that lost records: 1; markers that are gone: 1"),
        ([summary_of(0, plain(0), plain(0))], "offset 0 does not follow the one before it"),
        ([summary_of(5, plain(4))], "offset 4 does not follow the one before it"),
        ([summary_of(0, plain(0, 3)), summary_of(2, plain(3))], "segment 0 ends at 3, above the base 2 of the next one"),
        ([summary_of(0, plain(0), plain(1), damage=30)], f"0.log, byte 0: {CHECKSUM_DIFFERS}offset 0 differs"),
    ],
)
def test_each_doubt_makes_it_unsound(summaries: list[SegmentSummary], reason: str) -> None:
    for zero, base in ((True, False), (False, True), (False, False)):
        judgement = judged(record_of(*summaries), zero=zero, base=base)
        assert judgement.snapshot_class is SnapshotClass.UNSOUND
        assert any(reason in each for each in judgement.reasons), judgement


def test_more_than_one_wrong_checksum_is_counted() -> None:
    data = bytearray(idempotent_log(range(3)).data)
    data[30] ^= 1
    data[30 + 61] ^= 1
    record = record_of(summarise_segment(BytesSegment(bytes(data)), 0))
    assert record.bad_crc_count == 2
    assert record.unsound_reasons[0].endswith("differs (and 1 more)")


def test_overlap_is_reported_with_the_segment_that_reaches_too_far() -> None:
    """Before the next one is taken: the boundary between them is judged then."""
    record = record_of(summary_of(0, plain(0, 3)), follow=2)
    assert judged(record).snapshot_class is SnapshotClass.UNSOUND
    assert judged(record_of(summary_of(0, plain(0, 3)), follow=3)).snapshot_class is SnapshotClass.EXACT


def test_a_hole_directly_below_the_next_base_counts_at_that_boundary() -> None:
    judgement = judged(record_of(summary_of(0, plain(0)), follow=9))
    assert judgement.snapshot_class is SnapshotClass.UNSOUND
    assert f"8 offsets between 1 and 9 {NOT_ON_DISK}" in judgement.reasons[0]


def test_wrapped_messages_are_no_hole() -> None:
    record = record_of(
        summary_of(0, message_of(1, 4, b"five", attributes=1)), summary_of(5, message_of(0, 7, b"three", attributes=1))
    )
    assert (record.unsound_reasons, record.missing_offsets, record.next_offset) == ([], 0, 8)


@pytest.mark.parametrize(
    ("tail", "kind"),
    [
        (b"\1" * 5, TailKind.TORN),
        (bytes(5), TailKind.ZERO_FILLED),
        (bytes(500), TailKind.ZERO_FILLED),
        (b"\xff" * 50, TailKind.CORRUPT),
    ],
)
def test_tails(tail: bytes, kind: TailKind) -> None:
    summary = summary_of(0, plain(0), tail=tail)
    assert summary.tail.kind is kind
    last, earlier = record_of(summary), record_of(summary, follow=1)
    assert earlier.damage is not None
    assert earlier.damage.offset == 1
    if kind is TailKind.CORRUPT:
        assert last.damage is not None
        assert last.notes == []
    else:
        assert last.damage is None
        assert judged(last).snapshot_class is SnapshotClass.EXACT
        assert kind.value.replace("_", "-") in judged(last).reasons[-1]


def test_first_damage_stays() -> None:
    corrupt = summary_of(0, plain(0), tail=b"\xff" * 50)
    record = record_of(corrupt, replace(with_facts(corrupt, next_offset=2), base_offset=1), follow=2)
    assert record.damage is not None
    assert record.damage.offset == 1


def test_epoch_that_went_down() -> None:
    client = Client(7, is_transactional=False, epoch=3)
    first = client.data(0, 1, 5)
    client.epoch = 2
    summary = summary_of(0, first, client.data(1, 1, 5))
    judgement = judged(record_of(summary), summary.effect)
    assert judgement.snapshot_class is SnapshotClass.UNPROVEN
    assert "the epoch of producer 7 went down" in judgement.reasons[0]
    doubtful = record_of(with_facts(summary, missing_offsets=1))
    assert judged(doubtful, summary.effect).snapshot_class is SnapshotClass.UNSOUND
    other = Client(8, is_transactional=False)
    steady = compose(summary_of(0, other.data(0, 1, 5)).effect, summary_of(0, other.data(1, 1, 5)).effect)
    assert judged(record_of(summary), steady).snapshot_class is SnapshotClass.EXACT


def test_doubts_are_listed_up_to_a_number() -> None:
    record = record_of(*(summary_of(2 * index, plain(2 * index)) for index in range(REASONS_LISTED_MAX + 5)))
    reasons = judged(record).reasons
    assert len(reasons) == REASONS_LISTED_MAX + 1
    assert reasons[-1] == "and 4 more"
    few = record_of(*(summary_of(2 * index, plain(2 * index)) for index in range(REASONS_LISTED_MAX + 1)))
    assert len(judged(few).reasons) == REASONS_LISTED_MAX
