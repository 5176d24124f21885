"""Which elections may delete data (KAFKA-20732): 3.6 to 4.3.1, remote storage on, ``retention.bytes`` set."""

import pytest

from snaprebuild.broker.releases import parse_release
from snaprebuild.cli.options.kafka_release import fleet_release_of
from snaprebuild.cluster.fleet.election_risk import Risk, TopicStorage, election_risk
from snaprebuild.errors import UsageError

ON, SIZED = TopicStorage(is_remote=True), TopicStorage(is_remote=True, retention_bytes=1 << 30)
UNLIMITED = TopicStorage(is_remote=True, retention_bytes=-1)
OFF = TopicStorage(retention_bytes=1 << 30)


def risk(
    storage: TopicStorage | None, release: str | None = None, level: int | None = None, default: int | None = None
) -> tuple[Risk, str]:
    stated = None if release is None else parse_release(release)
    found = election_risk("t", 2, 4711, storage, default, stated, level)
    assert (found.command is not None) == (found.outcome is Risk.UNKNOWN)
    assert found.size_bytes == (4711 if found.outcome is Risk.AFFECTED else None)
    return found.outcome, found.reason


@pytest.mark.parametrize("release", ["3.6.0", "3.9.2", "4.2.1", "4.3.0", "4.3.1"])
def test_affected(release: str) -> None:
    assert risk(SIZED, release)[0] is Risk.AFFECTED
    assert risk(ON, release, default=1 << 40)[0] is Risk.AFFECTED


@pytest.mark.parametrize("level", [12, 21, 25, 29])
def test_affected_by_the_metadata_log_alone(level: int) -> None:
    """``MetadataVersion``: 3.6-IV0, 3.9-IV0, 4.0-IV3, 4.2-IV1."""
    assert risk(SIZED, level=level)[0] is Risk.AFFECTED
    assert risk(SIZED, "4.3.2", level=level)[0] is Risk.AFFECTED, "what is stated does not override evidence"


@pytest.mark.parametrize(
    ("storage", "release", "level", "default"),
    [
        (OFF, None, None, None),
        (OFF, "4.3.1", 30, 1 << 30),
        (TopicStorage(), "3.9.0", 21, 1 << 30),
        (UNLIMITED, "4.3.1", 30, 1 << 30),
        (UNLIMITED, None, None, None),
        (ON, "4.3.1", 30, -1),
        (SIZED, "4.3.2", 30, None),
        (SIZED, "4.4.0", 33, None),
        (SIZED, "3.5.2", None, None),
        (SIZED, None, 11, None),
        (None, "4.4.0", None, None),
    ],
)
def test_not_affected(storage: TopicStorage | None, release: str | None, level: int | None, default: int | None) -> None:
    assert risk(storage, release, level, default)[0] is Risk.NOT_AFFECTED


@pytest.mark.parametrize(
    ("storage", "release", "level", "missing"),
    [
        (None, "4.3.1", None, "--metadata"),
        (None, None, None, "--metadata"),
        (ON, "4.3.1", 30, "--assume retention_bytes"),
        (SIZED, None, None, "--kafka-release"),
        (SIZED, None, 30, "--kafka-release"),
        (SIZED, None, 31, "--kafka-release"),
        (SIZED, "3.5.0", 30, "--kafka-release"),
    ],
)
def test_unknown(storage: TopicStorage | None, release: str | None, level: int | None, missing: str) -> None:
    """Level 30 is 4.3 of any patch; 4.3.1 registers 31 where unstable versions are on."""
    outcome, reason = risk(storage, release, level)
    assert outcome is Risk.UNKNOWN
    assert missing in reason


@pytest.mark.parametrize("text", ["", "4.3", "4.3.1-rc0", "v4.3.1", "4.3.x"])
def test_no_release(text: str) -> None:
    with pytest.raises(UsageError, match=r"such as 4\.3\.1"):
        fleet_release_of(text)
