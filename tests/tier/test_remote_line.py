"""Copies that share offsets, put together: next to a reference that looks at every offset of every copy."""

from budgets import scaled
from hypothesis import given, settings
from hypothesis import strategies as st

from snaprebuild.tier.audit.copy_log import CopySpan, agreed_end, follow_one_another, remote_line

Epochs = tuple[tuple[int, int], ...]


@st.composite
def logs(draw: st.DrawFn) -> dict[int, int]:
    """Leader epoch of each offset: of a log."""
    epochs: dict[int, int] = {}
    epoch = 0
    for length in draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)):
        for _ in range(length):
            epochs[len(epochs)] = epoch
        epoch += draw(st.integers(1, 2))
    return epochs


@st.composite
def diverged(draw: st.DrawFn, log: dict[int, int]) -> dict[int, int]:
    """A log that was cut off from a leader: the right one up to some offset, then more of the epoch that it had there."""
    at = draw(st.integers(1, len(log)))
    return {offset: log[min(offset, at - 1)] for offset in range(at + draw(st.integers(0, 5)))}


def entries_of(offsets: dict[int, int]) -> Epochs:
    found: list[tuple[int, int]] = []
    for offset, epoch in sorted(offsets.items()):
        if not found or found[-1][0] != epoch:
            found.append((epoch, offset))
    return tuple(found)


@st.composite
def stores(draw: st.DrawFn) -> tuple[dict[int, int], list[dict[int, int]]]:
    """A log, and the offsets of each copy with their epochs."""
    log = draw(logs())
    copies = []
    for _ in range(draw(st.integers(1, 8))):
        held = draw(st.one_of(st.just(log), diverged(log)))
        first = draw(st.integers(0, len(held) - 1))
        last = draw(st.integers(first, len(held) - 1))
        copies.append({offset: held[offset] for offset in range(first, last + 1)})
    return log, copies


def span(copy: dict[int, int]) -> CopySpan:
    return CopySpan(min(copy), max(copy), entries_of(copy))


@settings(max_examples=scaled(300))
@given(stores())
def test_every_offset_that_some_copy_has_of_the_log(found: tuple[dict[int, int], list[dict[int, int]]]) -> None:
    log, copies = found
    spans = [span(copy) for copy in copies]
    line = remote_line(spans, entries_of(log))
    # Log matching: what agrees at an offset agrees below it, so that the first offset that differs ends it.
    agreeing = []
    for copy in copies:
        differing = [offset for offset, epoch in copy.items() if log.get(offset, log[max(log)]) != epoch]
        agreeing.append(set(range(min(copy), min(differing, default=max(copy) + 1))))
    assert [agreed_end(each, entries_of(log)) for each in spans] == [
        max(same, default=min(copy) - 1) + 1 for same, copy in zip(agreeing, copies, strict=True)
    ]
    taken: list[int] = []
    for part in line.parts:
        offsets = list(range(spans[part.number].start_offset, part.until))
        assert offsets, "a part holds something"
        assert set(offsets) <= agreeing[part.number]
        taken += offsets
    assert taken == sorted(set(taken)), "in order, and none twice"
    assert set(taken) == set().union(*agreeing), "all that some copy has of the log"
    whole = [number for number, copy in enumerate(copies) if agreeing[number] == set(copy)]
    assert list(line.members) == whole
    assert sorted((*line.members, *line.left_out)) == list(range(len(copies)))
    for number in line.members:
        assert spans[number].end_offset in taken


@settings(max_examples=scaled(200))
@given(stores())
def test_without_leader_epochs(found: tuple[dict[int, int], list[dict[int, int]]]) -> None:
    """Copies follow one another, up to the first that begins in the middle of another one."""
    spans = [CopySpan(min(copy), max(copy)) for copy in found[1]]
    line = remote_line(spans, ())
    reached = -1
    for part in line.parts:
        assert spans[part.number].start_offset > reached
        assert part.until == spans[part.number].end_offset + 1
        reached = part.until - 1
    assert sorted((*line.members, *line.left_out)) == list(range(len(spans)))
    if follow_one_another(spans):
        assert not line.left_out


def test_overlaps() -> None:
    assert follow_one_another([CopySpan(0, 9), CopySpan(12, 19)])
    assert not follow_one_another([CopySpan(5, 12), CopySpan(0, 9)])
    assert follow_one_another([])


def test_an_old_leader_continued_longer() -> None:
    """Its uploads after the end of the newer one share no offset, and are no part of the log."""
    spans = [CopySpan(0, 9, ((0, 0), (2, 5))), CopySpan(10, 19, ((1, 10),))]
    assert not follow_one_another(spans)
    assert remote_line(spans, ((0, 0), (2, 5))).members == (0,)


def test_a_whole_copy_is_taken_before_one_that_goes_on_with_lost_records() -> None:
    """A broker reads from a copy as a whole: it would hand out the lost records."""
    epochs = ((0, 0), (1, 75))
    lost = CopySpan(69, 78, ((0, 69),), rank=(0, 2))
    spans = [
        CopySpan(0, 68, ((0, 0),)),
        lost,
        CopySpan(69, 71, ((0, 69),)),
        CopySpan(72, 74, ((0, 72),)),
        CopySpan(75, 99, ((1, 75),)),
    ]
    assert [(part.number, part.until) for part in remote_line(spans, epochs).parts] == [(0, 69), (2, 72), (3, 75), (4, 100)]
    without = [each for each in spans if each.start_offset != 72]
    assert [(part.number, part.until) for part in remote_line(without, epochs).parts] == [(0, 69), (1, 75), (3, 100)]


def test_what_a_log_has_forgotten() -> None:
    """Epochs begin with the log start; copies below it are of epochs that are no longer reported."""
    assert agreed_end(CopySpan(0, 9, ((3, 0),)), ((5, 20),)) == 10
    assert agreed_end(CopySpan(15, 29, ((3, 15), (5, 20))), ((5, 20), (6, 25))) == 25


def test_many_copies_that_share_offsets() -> None:
    """Each is looked at a few times, and not once for each other one."""
    looks = 0

    class Counted(CopySpan):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "start_offset"
            return object.__getattribute__(self, name)

    count = 2000
    spans = [Counted(100 * number, 100 * number + 100, ((0, 100 * number),)) for number in range(count)]
    line = remote_line(spans, ((0, 0),))
    assert [(part.number, part.until) for part in line.parts[:2]] == [(0, 100), (1, 200)]
    assert len(line.parts) == len(line.members) == count
    assert looks < 50 * count
