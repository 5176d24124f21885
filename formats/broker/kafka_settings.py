"""The settings that releases of Kafka know by name, with types and defaults, and which of them hold secrets.

Source: ``KafkaConfig.configDef``, ``LogConfig.configDefCopy``, ``GroupConfig``, ``ClientMetricsConfigs``, ``DynamicConfig.Broker`` and
``ConfigDef.Type.isSensitive`` of Kafka 2.4 to 4.4. ``scripts/kafka/release_catalogue.py`` writes ``formats/schemas/kafka-settings.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

__all__ = ["KafkaSetting", "SettingState", "kafka_settings", "release_number"]

_NUMBERS = {"topic": 2, "broker": 4, "client-metrics": 16, "group": 32}
"""``ConfigResource.Type``."""


class SettingState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a setting from a release on, until the next state.

    Attributes:
        since: a release, such as ``4.4``.
        type: ``ConfigDef.Type`` in small letters; None if the release does not know the name.
        default: as text; None is Kafka's null. Unset if the setting has no default, and must be set.
    """

    since: str
    type: str | None = None
    default: str | msgspec.UnsetType | None = msgspec.UNSET


class KafkaSetting(msgspec.Struct, frozen=True):
    """One setting over all releases.

    Attributes:
        states: oldest first. The first one is of the first release that knows the name.
    """

    states: tuple[SettingState, ...]

    @property
    def is_secret(self) -> bool:
        """A release defines it as a ``PASSWORD``."""
        return any(state.type == "password" for state in self.states)

    def state_in(self, release: str) -> SettingState | None:
        """The state of the setting in a release; None if the release does not know it.

        Args:
            release: such as ``4.4``.
        """
        past = [state for state in self.states if release_number(state.since) <= release_number(release)]
        if past and past[-1].type is not None:
            return past[-1]
        return None

    @property
    def releases_text(self) -> str:
        """Which releases know it: ``since 4.4``, ``2.4 to 3.9``, ``4.2.2, and since 4.4``."""
        catalogue = _catalogue()
        releases = list(catalogue.releases)
        parts = []
        for number, state in enumerate(self.states):
            if state.type is None or (number > 0 and self.states[number - 1].type is not None):
                continue
            end = next((each.since for each in self.states[number:] if each.type is None), None)
            last = None if end is None else releases[releases.index(end) - 1]
            parts.append(_span_text(state.since, last, catalogue.releases))
        return ", and ".join(parts)


def _span_text(first: str, last: str | None, patches: Mapping[str, str]) -> str:
    if last is None:
        return f"since {first}"
    # A setting that came and went again came with a patch release, or was an experiment: the patch release that was read is named.
    return patches[first] if first == last else f"{first} to {last}"


def release_number(release: str) -> tuple[int, ...]:
    """For comparisons: ``(4, 4)``."""
    return tuple(map(int, release.split(".")))


class _SettingCatalogue(msgspec.Struct, frozen=True):
    releases: dict[str, str]
    settings: dict[str, dict[str, tuple[SettingState, ...]]]


@cache
def _catalogue() -> _SettingCatalogue:
    content = resources.files("formats").joinpath("schemas", "kafka-settings.json").read_bytes()
    return msgspec.json.decode(content, type=_SettingCatalogue)


@cache
def kafka_settings() -> Mapping[int, Mapping[str, KafkaSetting]]:
    """By the number of a type of resource (``ConfigResource.Type``), and by name."""
    return {
        _NUMBERS[section.removeprefix("settings/")]: {name: KafkaSetting(states) for name, states in settings.items()}
        for section, settings in _catalogue().settings.items()
    }
