"""Formats and features of each release of Kafka: feature levels, versions of files and of messages.

Source: ``QuorumFeatures``, ``MetadataVersion``, ``Feature``, and the classes and schemas of files, of Kafka 2.4 to 4.4.
``scripts/kafka/release_catalogue.py`` writes ``formats/schemas/kafka-releases.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from formats.broker.kafka_settings import release_number

__all__ = [
    "METADATA_VERSION",
    "FeatureRange",
    "MessageShape",
    "catalogued_releases",
    "file_versions",
    "level_name",
    "message_shape",
    "release_of_level",
    "supported_features",
]

METADATA_VERSION = "metadata.version"


class FeatureRange(msgspec.Struct, frozen=True):
    """The levels of one feature that a release registers.

    Attributes:
        lowest: level.
        highest: stable level.
        highest_unstable: the highest one if ``unstable.feature.versions.enable`` is set.
    """

    lowest: int
    highest: int
    highest_unstable: int


class MessageShape(msgspec.Struct, frozen=True):
    """The versions and tagged fields of a message in one release.

    Attributes:
        versions: in Kafka's notation, such as ``0-4``.
        tagged_fields: paths of the tagged fields, as Kafka's schema spells them: ``ActiveTasks.AssignmentEpochs``.
    """

    versions: str
    tagged_fields: frozenset[str]


class _ReleaseCatalogue(msgspec.Struct, frozen=True):
    releases: dict[str, str]
    facts: dict[str, dict[str, list[list[Any]]]]


@cache
def _catalogue() -> _ReleaseCatalogue:
    content = resources.files("formats").joinpath("schemas", "kafka-releases.json").read_bytes()
    return msgspec.json.decode(content, type=_ReleaseCatalogue)


def _value_in(history: list[list[Any]], release: str) -> list[Any]:
    """The value in a release; empty if the release does not know it."""
    past = [state for state in history if release_number(state[0]) <= release_number(release)]
    return past[-1][1:] if past else []


def catalogued_releases() -> Mapping[str, str]:
    """The releases in the catalogue, oldest first: ``4.4`` to ``4.4.0``, the patch release that was read."""
    return _catalogue().releases


def supported_features(release: str) -> Mapping[str, FeatureRange]:
    """The features that a controller of a release registers, by name. There are none before 3.3.

    Args:
        release: such as ``4.4``.
    """
    values = {name: _value_in(history, release) for name, history in _catalogue().facts["features"].items()}
    return {name: FeatureRange(*value) for name, value in values.items() if value}


def release_of_level(feature: str, level: int) -> str | None:
    """The first release that supports a level as a stable one; None if none in the catalogue does.

    Args:
        feature: such as ``metadata.version``.
        level: a number of it.
    """
    for release in _catalogue().releases:
        supported = supported_features(release).get(feature)
        if supported is not None and level <= supported.highest:
            return release
    return None


def level_name(feature: str, level: int) -> str | None:
    """Kafka's name of a level, such as ``4.4-IV1``; None if the catalogue has none.

    Args:
        feature: such as ``metadata.version``.
        level: a number of it.
    """
    history = _catalogue().facts.get(f"levels/{feature}", {}).get(str(level))
    names = [state[1] for state in history or () if len(state) > 1]
    return names[-1] if names else None


def file_versions(release: str) -> Mapping[str, int]:
    """The version that a release writes, by kind of file (``producer-snapshot``, ``leader-epoch-checkpoint`` and others).

    Args:
        release: such as ``4.4``.
    """
    values = {kind: _value_in(history, release) for kind, history in _catalogue().facts["files"].items()}
    return {kind: value[0] for kind, value in values.items() if value}


def message_shape(release: str, name: str) -> MessageShape | None:
    """The versions and fields of a message on disk that a release knows; None if it does not know the message.

    Args:
        release: such as ``4.4``.
        name: of the message, such as ``OffsetCommitValue``.
    """
    value = _value_in(_catalogue().facts["messages"].get(name, []), release)
    if not value:
        return None
    versions, *tags = value
    return MessageShape(versions, frozenset(path for each in tags for path in each))
