"""Scenario files of ``simulate metadata-log`` (TOML): what is written, who takes checkpoints, who reads how far."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import msgspec

from formats import limits
from snaprebuild.cluster.quorum.log_start import (
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    DEFAULT_CHECKPOINT_RECORD_BYTES,
    DEFAULT_LAG_TIME_MAX_MS,
    DEFAULT_RETENTION_BYTES,
    DEFAULT_RETENTION_MS,
    StartSettings,
)
from snaprebuild.errors import UsageError
from snaprebuild.storage.local.regular_file import read_small_file

__all__ = [
    "LEADER",
    "Append",
    "MetadataLogScenario",
    "NodeSettings",
    "ScenarioListener",
    "ScenarioReplica",
    "Span",
    "load_scenario",
    "read_scenario",
]

LEADER = "leader"
"""The node that listeners belong to by default."""

DURATION_MAX_MS = 100 * 366 * 86_400_000
COUNT_MAX = 2**31 - 1
BYTES_MAX = 2**50
OFFSET_MAX = 2**62
READERS_MAX = 1_000
"""Replicas, listeners, and spans of one of them; a cluster has hundreds of brokers at most."""

_DURATION = re.compile(r"(0|[1-9][0-9]{0,14})(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAME = re.compile(r"[A-Za-z0-9._-]{1,60}")


class ScenarioDuration(int):
    """Milliseconds, written as such or as ``90s``, ``4h``, ``7d``."""

    least: ClassVar[int] = 0


class PositiveDuration(ScenarioDuration):
    """A duration of at least 1 ms."""

    least = 1


class RetentionDuration(ScenarioDuration):
    """A duration, or -1 for off."""

    least = -1


class Name(str):
    """A name, or a number."""

    __slots__ = ()


Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
PositiveCount = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
PositiveBytes = Annotated[int, msgspec.Meta(ge=1, le=BYTES_MAX)]


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class Span(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Times from ``begin_ms`` to below ``end_ms``, since the scenario began."""

    begin_ms: ScenarioDuration
    end_ms: ScenarioDuration

    def __post_init__(self) -> None:
        """Raises ValueError, which becomes an error with the place."""
        if self.begin_ms >= self.end_ms:
            raise ValueError("expected a time that ends after it begins")


Spans = Annotated[tuple[Span, ...], msgspec.Meta(max_length=READERS_MAX)]


class Append(Table, frozen=True, kw_only=True):
    """Equal batches that the leader appends: one each ``every_ms`` from ``begin_ms`` to below ``end_ms``."""

    every_ms: PositiveDuration = msgspec.field(name="every")
    begin_ms: ScenarioDuration = msgspec.field(name="from", default=ScenarioDuration(0))
    end_ms: ScenarioDuration = msgspec.field(name="until", default=ScenarioDuration(DURATION_MAX_MS))
    records: PositiveCount = 1
    size_bytes: Annotated[int, msgspec.Meta(ge=61, le=COUNT_MAX)] = msgspec.field(name="bytes", default=100)


class NodeSettings(Table, frozen=True, kw_only=True):
    """How nodes keep their logs and when they take checkpoints, by Kafka's settings.

    Attributes:
        segment_bytes: ``metadata.log.segment.bytes``.
        checkpoint_interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0 is off.
        checkpoint_record_bytes: ``metadata.log.max.record.bytes.between.snapshots``.
        clean_interval_ms: between two looks at the start; Kafka's is one minute.
        checkpoint_bytes: size of the first checkpoint.
        checkpoint_growth_bytes: how much larger each next one is.
    """

    segment_bytes: PositiveCount = 1 << 30
    checkpoint_interval_ms: ScenarioDuration = msgspec.field(
        name="checkpoint_interval", default=ScenarioDuration(DEFAULT_CHECKPOINT_INTERVAL_MS)
    )
    checkpoint_record_bytes: PositiveBytes = DEFAULT_CHECKPOINT_RECORD_BYTES
    clean_interval_ms: PositiveDuration = msgspec.field(name="clean_interval", default=PositiveDuration(60_000))
    checkpoint_bytes: PositiveBytes = 1 << 20
    checkpoint_growth_bytes: Count = 0


class ScenarioReader(Table, frozen=True, kw_only=True):
    """Reads the log of a node.

    Attributes:
        lag_records: how far from the end of the log it is when it follows.
        records_per_second: it reads no faster; 0 has no limit.
        stuck: times at which it lives and reads nothing.
    """

    lag_records: Count = 0
    records_per_second: Count = 0
    stuck: Spans = ()


class ScenarioListener(ScenarioReader, frozen=True, kw_only=True):
    """A listener of a node."""

    name: Name
    node: Name = Name(LEADER)
    down: ClassVar[tuple[Span, ...]] = ()


class ScenarioReplica(ScenarioReader, frozen=True, kw_only=True):
    """A follower.

    Attributes:
        down: times at which it is stopped: it neither fetches nor counts as live, and takes no checkpoints.
        checkpoint_shift_ms: its checkpoints come so much later than its leader's.
    """

    name: Name = msgspec.field(name="id")
    down: Spans = ()
    checkpoint_shift_ms: ScenarioDuration = msgspec.field(name="checkpoint_shift", default=ScenarioDuration(0))


class PolicyConfig(Table, frozen=True, kw_only=True):
    """Settings of the policies, by Kafka's names."""

    retention_bytes: Annotated[int, msgspec.Meta(ge=-1, le=BYTES_MAX)] = msgspec.field(
        name="metadata.max.retention.bytes", default=DEFAULT_RETENTION_BYTES
    )
    retention_ms: RetentionDuration = msgspec.field(
        name="metadata.max.retention.ms", default=RetentionDuration(DEFAULT_RETENTION_MS)
    )
    lag_time_max_ms: ScenarioDuration = msgspec.field(
        name="metadata.start.offset.lag.time.max.ms", default=ScenarioDuration(DEFAULT_LAG_TIME_MAX_MS)
    )


class MetadataLogScenario(Table, frozen=True, kw_only=True):
    """The events of a metadata log; it begins empty, at 0.

    Attributes:
        elections: when the leader is elected anew, which begins a leader epoch; the first is 1, at time 0.
        appends: batches that the leader writes.
        replicas: followers.
        listeners: of any node.
    """

    duration_ms: PositiveDuration = msgspec.field(name="duration")
    title: Annotated[str, msgspec.Meta(max_length=200)] = ""
    config: PolicyConfig = PolicyConfig()
    nodes: NodeSettings = NodeSettings()
    elections: Annotated[tuple[ScenarioDuration, ...], msgspec.Meta(max_length=READERS_MAX)] = ()
    appends: Annotated[tuple[Append, ...], msgspec.Meta(max_length=READERS_MAX)] = msgspec.field(name="append", default=())
    replicas: Annotated[tuple[ScenarioReplica, ...], msgspec.Meta(max_length=READERS_MAX)] = msgspec.field(
        name="replica", default=()
    )
    listeners: Annotated[tuple[ScenarioListener, ...], msgspec.Meta(max_length=READERS_MAX)] = msgspec.field(
        name="listener", default=()
    )

    @property
    def settings(self) -> StartSettings:
        """Settings of the policies."""
        return StartSettings(self.config.retention_bytes, self.config.retention_ms, self.config.lag_time_max_ms)


def load_scenario(path: str) -> MetadataLogScenario:
    """Reads a scenario file.

    Raises:
        UsageError: there is none, or it is wrong.
        ReadFailedError: it cannot be read, or is larger than ``limits.SCENARIO_BYTES_MAX``.
    """
    data = read_small_file(path, limits.SCENARIO_BYTES_MAX)
    if data is None:
        raise UsageError("does not exist", path=path)
    return read_scenario(data, path)


def read_scenario(data: bytes, file: str) -> MetadataLogScenario:
    """A scenario file as a value.

    Raises:
        UsageError: no TOML, or an unknown, missing or impossible value; the message names its place.
    """
    try:
        table = tomllib.loads(data.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"is not text in UTF-8: byte {error.start}", path=file) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is not TOML: {error}", path=file) from None
    if isinstance(table.get("config"), dict):  # without quotes TOML takes the dots of Kafka's names for tables in tables
        table["config"] = _flat(table["config"])
    try:
        scenario = msgspec.convert(table, MetadataLogScenario, dec_hook=_from_toml)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        place = f"{place.rstrip('`')}: " if place else ""
        raise UsageError(f"{place}{text[:1].lower()}{text[1:].replace(', got ', ', found ')}", path=file) from None
    return _checked(scenario, file)


def _flat(table: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    waiting = list(table.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(f"{name}.{below}", each) for below, each in value.items()]
        else:
            flat[name] = value
    return flat


def _from_toml(kind: type[Any], value: object) -> object:
    """A value of one of the types of this module."""
    if issubclass(kind, ScenarioDuration):
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        milliseconds = int(match[1]) * _UNITS_MS[match[2]] if match else value
        if type(milliseconds) is int and kind.least <= milliseconds <= DURATION_MAX_MS:
            return kind(milliseconds)
        expected = f'a time like "90s", "4h" or "7d", or milliseconds, from {kind.least} to {DURATION_MAX_MS} ms'
    else:
        text = str(value) if type(value) is int else value
        if isinstance(text, str) and _NAME.fullmatch(text) is not None:
            return kind(text)
        expected = "a name of letters, digits, dots, dashes and underscores"
    raise ValueError(f"expected {expected}, found {value!r:.60}")


def _checked(scenario: MetadataLogScenario, file: str) -> MetadataLogScenario:
    """The scenario, after the checks that a type cannot express."""
    duration_ms = scenario.duration_ms
    appends = [msgspec.structs.replace(append, end_ms=min(append.end_ms, duration_ms)) for append in scenario.appends]
    names = [replica.name for replica in scenario.replicas]
    readers = [(listener.node, listener.name) for listener in scenario.listeners]
    bytes_max = max(61, scenario.nodes.segment_bytes)
    spans = [("replica", replica.down) for replica in scenario.replicas] + [
        ("replica", replica.stuck) for replica in scenario.replicas
    ]
    spans += [("listener", listener.stuck) for listener in scenario.listeners]
    wrong = [
        ("elections", "ascending times within the duration")
        for before, after in zip((0, *scenario.elections), (*scenario.elections, duration_ms), strict=True)
        if before >= after
    ]
    wrong += [
        (f"append[{at}].from", f"a time before {each.end_ms} ms") for at, each in enumerate(appends) if each.begin_ms >= each.end_ms
    ]
    wrong += [
        (f"append[{at}].bytes", f"a whole number from 61 to {bytes_max}")
        for at, each in enumerate(appends)
        if each.size_bytes > bytes_max
    ]
    wrong += [
        (f"append[{at}].records", "offsets that fit an int64")
        for at, each in enumerate(appends)
        if (each.end_ms - each.begin_ms) // each.every_ms * each.records > OFFSET_MAX
    ]
    wrong += [(name, "spans in order, none of which overlaps another") for name, each in spans if not _are_apart(each)]
    if len({*names, LEADER}) <= len(names):
        wrong.append(("replica", f"names that differ, none of them {LEADER}"))
    wrong += [
        (f"listener[{at}].node", f"one of {', '.join(sorted((LEADER, *names))[:10])}, found {node!r}")
        for at, (node, _) in enumerate(readers)
        if node not in (LEADER, *names)
    ]
    if len({*readers}) < len(readers):
        wrong.append(("listener", "names that differ on each node"))
    for place, expected in wrong:
        raise UsageError(f"{place}: expected {expected}", path=file)
    return msgspec.structs.replace(scenario, appends=tuple(appends))


def _are_apart(spans: Sequence[Span]) -> bool:
    return all(before.end_ms <= after.begin_ms for before, after in pairwise(spans))
