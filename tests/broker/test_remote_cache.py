"""The model of the cache of remote log metadata, with which the states of copies are compared, against Kafka's own class."""

from collections import defaultdict

import pytest
from generated_clusters import Event, generated_cluster
from kafka_classpath import java_output
from remote_cache_model import CacheModel, Partition

from formats.remote.remote_log_metadata import write_remote_log_record

pytestmark = pytest.mark.kafka

STORES = 400
LAST_EPOCH = 8
LAST_OFFSET = 160


def answer_of(cache: CacheModel) -> str:
    """The line of ``CacheAnswers``."""
    words = [f"{segment}={each.state}{'*' * cache.is_read(segment)}" for segment, each in sorted(cache.segments.items())]
    for epoch in range(LAST_EPOCH + 1):
        for offset in range(LAST_OFFSET + 1):
            segment = cache.lookup(epoch, offset)
            if segment is not None:
                words.append(f"{epoch}:{offset}={segment}")
    return " ".join(words)


def test_the_model_of_the_cache_answers_as_kafka() -> None:
    lines: list[str] = []
    expected: list[str] = []
    for seed in range(STORES):
        own = generated_cluster(seed).own
        by_partition: dict[Partition, list[Event]] = defaultdict(list)
        for event in own.events:
            if event.copied is not None:
                by_partition[event.partition].append(event)
        for events in by_partition.values():
            cache = CacheModel()
            for event in events:
                event.apply_to(cache)
            lines += [write_remote_log_record(event.encoded()).hex() for event in events]
            lines.append(f"{LAST_EPOCH} {LAST_OFFSET}")
            expected.append(answer_of(cache))
    assert len(expected) > STORES
    assert java_output("CacheAnswers", lines=lines) == expected
