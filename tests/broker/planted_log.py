"""The log of a broker of Kafka 2.7 in the place of an empty topic of a stopped broker, written as of today."""

from collections.abc import Mapping
from pathlib import Path

from kafka_node import KafkaNode
from log_dirs import truth
from manifests import FIXTURES
from moved_in_time import entries_moved, moved_in_time, ms_to_present
from wire import Wire

SOURCE = FIXTURES / "kafka27-mixed" / "logs" / "mixed-0"
LATER_MS = ms_to_present(SOURCE)
"""A broker forgets producers of a log that is weeks old."""
TRUTH = {offset: frozenset(entries_moved(entries, LATER_MS)) for offset, entries in truth("kafka27-mixed", "mixed-0").items()}
"""Entries at each boundary by Kafka's own classes."""
LOG_END_OFFSET = 8231
LAST_STABLE_OFFSET = 6913
"""Two transactions hang; here begins the first of them, and ends what may be uploaded."""
LEFT = (7045, 7637, LOG_END_OFFSET)
"""Offsets of the snapshots that the broker of 2.7 left."""
MISSING = sorted(TRUTH.keys() - set(LEFT))


def plant_old_log(node: KafkaNode, settings: Mapping[str, object], topics: tuple[str, ...] = ("mixed",)) -> Path:
    """Creates the topics with the log in each of them; the broker is stopped then.

    Returns:
        The directory of the first one's partition.
    """
    node.start()
    for topic in topics:
        node.create_topic(topic, settings)
    with Wire(node.port) as wire:  # so that the next ids of the cluster are above those in the log
        wire.init_producer_id()
    node.stop()
    today = moved_in_time(SOURCE, node.root / "today" / "mixed-0", LATER_MS)
    directories = [node.plant(f"{topic}-0", today, LOG_END_OFFSET) for topic in topics]
    return directories[0]
