"""The committed catalogue is what the classes of each release say, and the bundled schemas are those of the newest one."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_classpath import CATALOGUED, kafka_classpath
from release_facts import CATALOGUED_RELEASES, Facts, facts_of

ROOT = Path(__file__).resolve().parents[2]

import message_schemas  # noqa: E402
import release_catalogue  # noqa: E402

pytestmark = pytest.mark.kafka

IN_EACH_RUN = ("3.9", "4.4")
"""The last release with ZooKeeper, and the newest one. The others take a download each."""

OTHERS = [each for each in CATALOGUED_RELEASES if each not in IN_EACH_RUN]
AT_NIGHT = [pytest.param(each, marks=pytest.mark.night) for each in OTHERS]
WITH_KRAFT_AT_NIGHT = AT_NIGHT[OTHERS.index("3.3") :]
"""Before 3.3 KRaft was a preview, whose records are not promised."""

WRITTEN_SINCE = {
    "RemoteLogSegmentMetadataRecord": (3, 6),
    "RemoteLogSegmentMetadataSnapshotRecord": (3, 6),
    "RemoteLogSegmentMetadataUpdateRecord": (3, 6),
    "DelegationTokenRecord": (3, 6),
    "UserScramCredentialRecord": (3, 5),
    "AccessControlRecord": (3, 5),
}
"""Records that are laid out in another way before the first release that writes them.

KIP-405 is in brokers since 3.6; ``MetadataVersion``: SCRAM since 3.5-IV2, delegation tokens since 3.6-IV2. No release wrote an
``AccessControlRecord``: ``AccessControlEntryRecord`` replaced it.
"""


@pytest.mark.parametrize("release", [*IN_EACH_RUN, *AT_NIGHT])
def test_the_catalogue_is_what_the_release_says(release: str) -> None:
    facts = facts_of(CATALOGUED_RELEASES[release])
    assert release_catalogue.facts_in(release_catalogue.committed(), release) == facts
    _assert_complete(facts, release)


def _assert_complete(facts: Facts, release: str) -> None:
    """A class that moved to a place that ``KafkaCatalogue.java`` does not know would leave facts out without a failure."""
    assert len(facts["settings/topic"]) >= 26
    assert len(facts["settings/broker"]) >= 195
    files = {
        "record-batch",
        "transaction-marker",
        "producer-snapshot",
        "transaction-index",
        "leader-epoch-checkpoint",
        "offset-checkpoint",
    }
    number = tuple(map(int, release.split(".")))
    if number >= (3, 3):
        assert "metadata.version" in facts["features"]
        assert facts["levels/metadata.version"]
        files.add("partition.metadata")
    if number >= (3, 7):
        files |= {"clean-shutdown", "meta.properties"}
        assert facts["settings/client-metrics"]
    if number >= (4, 0):
        assert facts["settings/group"]
        assert {f"levels/{name}" for name in facts["features"]} == {section for section in facts if section.startswith("levels/")}
    assert files <= facts["files"].keys()


def test_the_schemas_are_those_of_the_newest_release() -> None:
    for path, text in message_schemas.texts().items():
        assert path.read_text() == text, path.name


CONSUMER_GROUPS = {
    *("ConsumerGroupCurrentMemberAssignmentValue", "ConsumerGroupMemberMetadataValue", "ConsumerGroupPartitionMetadataValue"),
    "ConsumerGroupTargetAssignmentMemberValue",
}
SHARE_GROUPS = {"ShareGroupMetadataValue", "ShareGroupPartitionMetadataKey", "ShareGroupPartitionMetadataValue"}
EARLY_ACCESS = {
    **dict.fromkeys(("3.5", "3.6", "3.7"), CONSUMER_GROUPS),
    "3.9": SHARE_GROUPS,
    "4.0": {*SHARE_GROUPS, "ShareGroupStatePartitionMetadataValue", "ShareSnapshotValue", "ShareUpdateValue"},
}
"""Records of groups that were laid out in another way before the feature was ready (KIP-848, KIP-932)."""


@pytest.mark.parametrize("release", ["3.9", *WITH_KRAFT_AT_NIGHT])
def test_the_schemas_read_what_older_releases_write(release: str) -> None:
    """Each version of each record that the release knows has the same fields in the bundled schema."""
    older, newest = kafka_classpath(CATALOGUED_RELEASES[release]), kafka_classpath(CATALOGUED[-1])
    different = {line.split()[0] for line in message_schemas.different_layouts(older, newest)}
    number = tuple(map(int, release.split(".")))
    assert different == {name for name, since in WRITTEN_SINCE.items() if number < since} | EARLY_ACCESS.get(release, set())


def test_a_newer_release_is_reported_with_what_changed() -> None:
    """The catalogue is cut to end with 4.3.1. The changes of 4.4.0 are known, and the registry is asked for nothing else."""
    histories = release_catalogue.committed()
    lines = list(release_catalogue.changes(release_catalogue.facts_in(histories, "4.3"), facts_of("4.4.0")))
    assert 'settings/topic remote.copy.lag.ms: new, long, default "0"' in lines
    assert "features share.version: levels 0 to 1; now levels 0 to 2" in lines
    assert "messages UnregisterControllerRecord: new, versions 0" in lines
    assert any(
        line.startswith("messages StreamsGroupMetadataValue:") and "StoredDescriptionTopologyEpoch (2)" in line for line in lines
    )
    assert not list(release_catalogue.changes(release_catalogue.facts_in(histories, "4.4"), facts_of("4.4.0")))
