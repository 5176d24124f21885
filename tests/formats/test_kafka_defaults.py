"""Numbers of Kafka that the code has of its own are those that the classes of its releases say (``formats/schemas``)."""

from __future__ import annotations

import pytest

from formats.broker.kafka_releases import METADATA_VERSION, catalogued_releases, file_versions, level_name, supported_features
from formats.broker.kafka_settings import kafka_settings
from formats.partition.producer_snapshot import VERSION as PRODUCER_SNAPSHOT_VERSION
from snaprebuild.cluster.fleet import election_risk
from snaprebuild.cluster.quorum import log_start
from snaprebuild.cluster.source_check import cluster_rules
from snaprebuild.replay import window
from snaprebuild.snapshots.source import broker_properties

BROKER = 4


@pytest.mark.parametrize(
    ("name", "release", "ours"),
    [
        ("log.dir", "2.4", broker_properties.DEFAULT_LOG_DIR),
        ("log.dir", "4.4", broker_properties.DEFAULT_LOG_DIR),
        ("producer.id.expiration.ms", "3.4", window.DEFAULT_EXPIRATION_MS),
        ("producer.id.expiration.ms", "4.4", window.DEFAULT_EXPIRATION_MS),
        ("transactional.id.expiration.ms", "3.3", broker_properties.EXPIRATION_BEFORE_3_4_MS),
        ("metadata.max.retention.bytes", "4.4", log_start.DEFAULT_RETENTION_BYTES),
        ("metadata.max.retention.ms", "4.4", log_start.DEFAULT_RETENTION_MS),
        ("metadata.log.max.snapshot.interval.ms", "4.4", log_start.DEFAULT_CHECKPOINT_INTERVAL_MS),
        ("metadata.log.max.record.bytes.between.snapshots", "4.4", log_start.DEFAULT_CHECKPOINT_RECORD_BYTES),
    ],
)
def test_defaults(name: str, release: str, ours: object) -> None:
    state = kafka_settings()[BROKER][name].state_in(release)
    assert state is not None
    assert state.default == str(ours)


def test_the_name_of_the_expiration_is_that_of_3_4() -> None:
    assert kafka_settings()[BROKER]["producer.id.expiration.ms"].states[0].since == "3.4"


def test_levels() -> None:
    assert level_name(METADATA_VERSION, election_risk.LEVEL_OF_3_6) == "3.6-IV0"
    assert level_name(METADATA_VERSION, cluster_rules.METADATA_VERSION_3_9) == "3.9-IV0"
    ours = {"3.9": cluster_rules.METADATA_VERSION_3_9, "4.3": election_risk.LEVEL_OF_4_3, "4.4": election_risk.LEVEL_OF_4_4}
    assert {release: supported_features(release)[METADATA_VERSION].highest for release in ours} == ours


def test_each_release_writes_the_versions_of_files_that_are_read() -> None:
    written = {
        kind: {file_versions(release).get(kind) for release in catalogued_releases()} - {None} for kind in file_versions("4.4")
    }
    assert written["producer-snapshot"] == {PRODUCER_SNAPSHOT_VERSION}
    assert written["record-batch"] == {2}
    assert written["meta.properties"] == {1}
    of_version_0 = ("transaction-index", "leader-epoch-checkpoint", "offset-checkpoint", "partition.metadata", "clean-shutdown")
    assert {kind: written[kind] for kind in of_version_0} == {kind: {0} for kind in of_version_0}
