"""How long segments of each topic may wait for their upload, by the metadata logs (KRaft) that were read with a scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snaprebuild.snapshots.scan.copy_lag import BROKER_SETTINGS, TOPIC_SETTINGS, copy_lag, with_copy_lag
from snaprebuild.snapshots.scan.result import PartitionScan
from snaprebuild.snapshots.source.source import Source

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.topic_storage import TopicStorages

__all__ = ["CopyLags"]


class CopyLags:
    """``remote.copy.lag.*`` of topics, by the metadata logs that were read."""

    def __init__(self, source: Source) -> None:
        properties = source.properties
        values = {} if properties is None else {name: properties.get(name) for name in BROKER_SETTINGS}
        self._static = {name: value.strip() for name, value in values.items() if value}
        self._topics: dict[bytes, Mapping[str, str] | None] = {}
        self._brokers: dict[int | None, Mapping[str, str]] = {}

    def add(self, read: TopicStorages) -> None:
        """Takes the settings of one log. Two logs that differ leave the lag of a topic unknown."""
        for topic_id, configs in read.configs.items():
            own = {name: value for name, value in configs.items() if name in TOPIC_SETTINGS}
            self._topics[topic_id] = own if self._topics.get(topic_id, own) == own else None
        self._brokers |= read.broker_configs

    def applied_to(self, partition: PartitionScan, now_ms: int) -> PartitionScan:
        """The scan of a partition, with the segments that wait."""
        topic = None if partition.topic_id is None else self._topics.get(partition.topic_id)
        if topic is None:
            return partition
        meta = partition.source.log_dir.meta
        node = self._brokers.get(None if meta is None else meta.node_id, {})
        lag = copy_lag(topic, {**self._static, **self._brokers.get(None, {}), **node})
        return partition if lag is None else with_copy_lag(partition, lag, now_ms)
