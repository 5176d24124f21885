"""What becomes of an attempt to upload, in each case and version: what brokers logged, in the order in which the code throws."""

from __future__ import annotations

import itertools

import pytest

from snaprebuild.snapshots.scan.upload_preflight import copy_outcomes, ways_to_stop

NULL_POINTER, ILLEGAL = "java.lang.NullPointerException", "java.lang.IllegalArgumentException"

# Has a snapshot, has leader epochs, is too large: then what 3.6.2 and what 3.9.2 and 4.3.1 do, with whether a STARTED record is left.
# Without a snapshot: seen (22 exceptions of 3.6.2 and no such record; 13 of 3.9.2 and 13 records). Without epochs: the constructor of the
# record throws, which stands before the record is sent, and since 3.7.1 before the missing file is looked at.
TABLE = {
    (True, True, False): (None, True, None, True),
    (False, True, False): (NULL_POINTER, False, NULL_POINTER, True),
    (True, False, False): (ILLEGAL, False, ILLEGAL, False),
    (False, False, False): (NULL_POINTER, False, ILLEGAL, False),
}
TOO_LARGE = ("org.apache.kafka.common.KafkaException", False, "org.apache.kafka.common.KafkaException", False)


@pytest.mark.parametrize("case", list(itertools.product((True, False), repeat=3)), ids=str)
def test_every_case(case: tuple[bool, bool, bool]) -> None:
    has_snapshot, has_leader_epochs, is_too_large = case
    outcomes = copy_outcomes(has_snapshot=has_snapshot, has_leader_epochs=has_leader_epochs, is_too_large=is_too_large)
    assert [each.versions for each in outcomes] in (["3.6.0 to 4.4"], ["3.6.0 to 3.7.0", "3.7.1 to 4.4"])
    old, new = outcomes[0], outcomes[-1]
    expected = TOO_LARGE if is_too_large else TABLE[case]
    assert (old.exception, old.announces, new.exception, new.announces) == expected
    for outcome in outcomes:
        assert (outcome.thrown_in is None) == (outcome.exception is None)


def test_the_best_way_to_stop_comes_first() -> None:
    first, *others = ways_to_stop()
    assert first.setting == "topic: remote.log.copy.disable=true"
    assert any("DELETES" in each.effect for each in others), "the one that costs data says so"
