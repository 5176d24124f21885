"""Facts about releases in the bundled catalogue. A command that needs none of it does not read it."""

from __future__ import annotations

from pathlib import Path

import pytest
import release_catalogue
from command import snaprebuild

from formats.broker import kafka_releases, kafka_settings
from formats.broker.kafka_settings import SettingState

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
TOPIC, BROKER = 2, 4


@pytest.mark.parametrize(
    ("resource", "name", "releases"),
    [
        (TOPIC, "cleanup.policy", "since 2.4"),
        (TOPIC, "remote.storage.enable", "since 3.0"),
        (TOPIC, "remote.copy.lag.ms", "since 4.4"),
        (BROKER, "log.remote.copy.lag.bytes", "since 4.4"),
        (TOPIC, "message.format.version", "2.4 to 3.9"),
        (BROKER, "password.encoder.secret", "2.4 to 3.9"),
        # Came with a patch release of 4.2, which is newer than 4.3.1.
        (TOPIC, "max.decompressed.message.bytes", "4.2.2, and since 4.4"),
    ],
)
def test_which_releases_know_a_setting(resource: int, name: str, releases: str) -> None:
    assert kafka_settings.kafka_settings()[resource][name].releases_text == releases


def test_a_default_is_that_of_the_release() -> None:
    """Source: the documentation of 2.4 and 2.5 (KAFKA-4203)."""
    setting = kafka_settings.kafka_settings()[TOPIC]["max.message.bytes"]
    assert setting.state_in("2.4") == SettingState("2.4", "int", "1000012")
    assert setting.state_in("4.4") == SettingState("2.5", "int", "1048588")
    assert kafka_settings.kafka_settings()[TOPIC]["message.format.version"].state_in("4.0") is None


def test_levels_and_files() -> None:
    """Source: ``MetadataVersion`` of 3.9 and 4.4."""
    assert kafka_releases.release_of_level("metadata.version", 21) == "3.9"
    assert kafka_releases.release_of_level("metadata.version", 33) == "4.4"
    assert kafka_releases.release_of_level("metadata.version", 99) is None
    assert kafka_releases.level_name("metadata.version", 21) == "3.9-IV0"
    assert kafka_releases.level_name("metadata.version", 99) is None
    assert kafka_releases.supported_features("2.7") == {}
    assert kafka_releases.supported_features("4.4")["kraft.version"] == kafka_releases.FeatureRange(0, 1, 1)
    assert kafka_releases.file_versions("2.4")["producer-snapshot"] == 1


def test_the_catalogue_has_the_releases_of_the_documentation() -> None:
    releases = list(kafka_releases.catalogued_releases())
    page = (SCRIPTS.parent / "docs" / "guides" / "inspect.md").read_text()
    assert f"`--kafka-release` for another release ({releases[0]} to {releases[-1]})." in page


def test_a_scan_reads_none_of_it() -> None:
    kafka_settings._catalogue.cache_clear()
    kafka_releases._catalogue.cache_clear()
    assert snaprebuild("scan", "fixtures/kafka4-mixed").exit_code in (0, 1)
    assert kafka_settings._catalogue.cache_info().currsize == 0
    assert kafka_releases._catalogue.cache_info().currsize == 0


def test_a_merge_loses_nothing_and_newer_releases_are_found() -> None:
    facts = {
        "2.4": {"settings/topic": {"a": ["int", "1"], "b": ["int"]}, "files": {"x": [0]}},
        "3.0": {"settings/topic": {"a": ["int", "2"]}, "files": {"x": [0]}, "features": {"f": [0, 1, 2]}},
        "4.0": {"settings/topic": {"a": ["int", "2"], "b": ["int", None]}, "files": {"x": [1]}},
    }
    histories = release_catalogue.merged(facts)
    assert histories["settings/topic"]["b"] == [["2.4", "int"], ["3.0"], ["4.0", "int", None]]
    assert {release: release_catalogue.facts_in(histories, release) for release in facts} == facts
    lines = list(release_catalogue.changes(facts["3.0"], facts["4.0"]))
    assert lines == ["features f: removed", "files x: 0; now 1", "settings/topic b: new, int, default null"]
    served = ["2.3.1", "2.4.0", "2.4.1", "3.0.0", "3.0.3", "3.1.0-rc1", "4.0.0", "4.0.1", "5.0.0"]
    assert release_catalogue.newer_versions(served, ["2.4.1", "3.0.3", "4.0.0"]) == ["4.0.1", "5.0.0"]
    assert release_catalogue.newer_versions(served, ["2.4.1", "3.0.3", "4.0.1", "5.0.0"]) == []
