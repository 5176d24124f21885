"""Records that ``tier metadata`` rebuilds, parsed and folded by Kafka's own classes."""

from pathlib import Path

import pytest
from kafka_classpath import java_output
from overlapping_copies import check_reads, rebuilt_values, stores

from formats.partition.partition_metadata import uuid_from_text

pytestmark = pytest.mark.kafka

STORES = 12


def test_kafka_reads_each_offset_from_a_copy_that_has_it(tmp_path: Path) -> None:
    """Its uploads go on after the last copy."""
    for number, (made, log_start) in enumerate(stores(STORES, seed=7)):
        values = rebuilt_values(tmp_path / str(number), made, log_start)
        lines = [f"M {value.hex()}" for value in values]
        lines += [f"L {made.log[offset]} {offset}" for offset in range(made.served_end)]
        lines += [f"H {epoch}" for epoch, _ in made.epochs]
        answers = java_output("FoldedMetadata", "RebuiltRecords", lines=lines)
        copies = [answer.partition(" ") for answer in answers[: made.served_end]]
        assert {state for _, _, state in copies[log_start:]} == {"COPY_SEGMENT_FINISHED"}
        read = {offset: None if copy == "none" else uuid_from_text(copy) for offset, (copy, _, _) in enumerate(copies)}
        check_reads(made, log_start, read)
        ends = [start for _, start in made.epochs[1:]] + [len(made.log)]
        highest = [
            min(int(answer), end - 1) for answer, end in zip(answers[made.served_end :], ends, strict=True) if answer != "-1"
        ]
        assert highest[-1] == made.served_end - 1  # as ``findHighestRemoteOffset`` has it: of the newest epoch with copies
