"""Proofs by logs of voters: cases of the Raft paper and of KIP-595, and no proof that a later election could refute."""

from sentences import ENDS_LATER

from snaprebuild.cluster.metadata.proof import EpochLineage, MajorityProof, VoterLog, common_end, majority_proof


def lineage(end: int, *starts: tuple[int, int]) -> EpochLineage:
    return EpochLineage(starts, end)


def proof(voters: int, *logs: tuple[int, EpochLineage, int | None]) -> MajorityProof:
    """The proof for the first log."""
    return majority_proof(logs[0][1], frozenset(range(1, voters + 1)), [VoterLog(*each) for each in logs])


def test_how_far_two_logs_are_the_same() -> None:
    one = lineage(20, (1, 0), (2, 10), (4, 15))
    assert common_end(one, one) == 20
    assert common_end(one, lineage(12, (1, 0), (2, 10))) == 12
    assert common_end(one, lineage(30, (1, 0), (2, 10), (3, 13))) == 13
    assert common_end(one, lineage(30, (1, 0), (5, 7))) == 7
    assert common_end(one, lineage(18, (4, 16))) == 18, "the other begins behind a checkpoint"
    assert common_end(one, lineage(40, (4, 30))) is None
    assert common_end(one, lineage(0)) is None


def test_a_majority_that_has_heard_of_nothing_later() -> None:
    one, two = lineage(20, (1, 0), (2, 10)), lineage(18, (1, 0), (2, 10))
    found = proof(3, (1, one, 2), (2, two, 2))
    assert (found.end_offset, found.shared_end, found.common_ends) == (18, 18, ((1, 20), (2, 18)))
    assert proof(3, (1, one, 2)).end_offset is None
    assert proof(1, (1, one, 2)).end_offset == 20
    assert proof(5, (1, one, 2), (2, two, 2)).end_offset is None
    assert proof(5, (1, one, 2), (2, two, 2), (5, lineage(11, (1, 0), (2, 10)), 2)).end_offset == 11


def test_a_record_of_an_old_epoch_on_a_majority_is_not_committed() -> None:
    """Figure 8 of the Raft paper: three of five have epoch 2 at offset 1; the fifth won epoch 3, and can win again and take it back."""
    first, second, third = lineage(2, (1, 0), (2, 1)), lineage(2, (1, 0), (2, 1)), lineage(2, (1, 0), (2, 1))
    fourth, fifth = lineage(1, (1, 0)), lineage(2, (1, 0), (3, 1))
    seen = proof(5, (1, first, 4), (2, second, 4), (3, third, 4))
    assert (seen.end_offset, seen.shared_end) == (None, 2)
    assert "knows of epoch 4" in seen.reason
    everyone = proof(5, (1, first, 4), (2, second, 4), (3, third, 4), (4, fourth, 4), (5, fifth, 3))
    assert everyone.end_offset is None
    assert f"voter 5 {ENDS_LATER}" in everyone.reason
    without = proof(5, (1, first, 4), (2, second, 4), (3, third, 4), (4, fourth, 4), (5, fourth, 3))
    assert without.end_offset == 2, "every log is known, and who has not these records can win no election"
    committed = lineage(3, (1, 0), (2, 1), (4, 2))
    assert proof(5, (1, committed, 4), (2, committed, 4), (3, committed, 4), (5, fifth, 3)).end_offset == 3


def test_a_later_epoch_threatens_only_where_the_record_is_missing() -> None:
    """Epoch 2 at offset 1 is on three of three voters; the third has epoch 4, from a leader that has it (log matching, KIP-595)."""
    first, third = lineage(2, (1, 0), (2, 1)), lineage(5, (1, 0), (2, 1), (4, 2))
    found = proof(3, (1, first, 4), (2, first, 4), (3, third, 4))
    assert found.end_offset == 2
    lacks = proof(3, (1, first, 4), (2, first, 4), (3, lineage(5, (1, 0), (4, 1)), 4))
    assert lacks.end_offset is None
    assert f"voter 3 {ENDS_LATER}, lacks that record" in lacks.reason


def test_a_voter_that_does_not_say_what_it_has_heard_of() -> None:
    one = lineage(5, (1, 0))
    assert proof(3, (1, one, 1), (2, one, None)).end_offset is None
    assert proof(3, (1, one, 1), (2, one, None), (3, lineage(2, (1, 0)), None)).end_offset == 5
