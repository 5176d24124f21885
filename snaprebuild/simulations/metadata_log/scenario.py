"""Scenario files of ``simulate metadata-log``: what is written, who takes checkpoints, who reads how far. TOML (docs/kraft.md)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from snaprebuild.cluster.quorum.log_start import (
    DEFAULT_CHECKPOINT_INTERVAL_MS,
    DEFAULT_CHECKPOINT_RECORD_BYTES,
    DEFAULT_LAG_TIME_MAX_MS,
    DEFAULT_RETENTION_BYTES,
    DEFAULT_RETENTION_MS,
    StartSettings,
)
from snaprebuild.errors import UsageError

__all__ = ["LEADER", "Append", "NodeSettings", "Reader", "Scenario", "Span", "read_scenario"]

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

WORD_CHARACTERS_MAX = 100
DOTS_MAX = 1_000
"""In keys, of which the longest of Kafka have six."""
_LONG_WORD = re.compile(rf"[\w+-]{{{WORD_CHARACTERS_MAX + 1}}}")
_OPENS = re.compile(r"""\"{3}|'{3}|["'#]""")
_CLOSES = {
    "#": re.compile(r"(\n|\Z)"),
    "'": re.compile(r"(['\n])"),
    '"': re.compile(r'\\.|(["\n])'),
    "'''": re.compile(r"('{3,5})"),
    '"""': re.compile(r'\\.|("{3,5})', re.DOTALL),
}
"""What ends a comment or a string, as group 1, by what begins it; a string of one line ends with the line, which TOML refuses."""


@dataclass(frozen=True, slots=True)
class Span:
    """Times from ``begin_ms`` to below ``end_ms``, since the scenario began."""

    begin_ms: int
    end_ms: int


@dataclass(frozen=True, slots=True)
class Append:
    """Batches that the leader appends: one each ``every_ms`` within the span, of so many records and bytes."""

    span: Span
    every_ms: int
    records: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """How nodes keep their logs and when they take checkpoints, by Kafka's settings.

    Attributes:
        segment_bytes: ``metadata.log.segment.bytes``.
        checkpoint_interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0 is off.
        checkpoint_record_bytes: ``metadata.log.max.record.bytes.between.snapshots``.
        clean_interval_ms: between two looks at the start; Kafka's is one minute.
        checkpoint_bytes: size of the first checkpoint.
        checkpoint_growth_bytes: how much larger each next one is.
    """

    segment_bytes: int = 1 << 30
    checkpoint_interval_ms: int = DEFAULT_CHECKPOINT_INTERVAL_MS
    checkpoint_record_bytes: int = DEFAULT_CHECKPOINT_RECORD_BYTES
    clean_interval_ms: int = 60_000
    checkpoint_bytes: int = 1 << 20
    checkpoint_growth_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reader:
    """A replica, or a listener of a node.

    Attributes:
        name: of the listener; of a replica, its id.
        node: whose listener it is; of a replica, its own name.
        lag_records: how far behind the end of the log it is when it follows.
        records_per_second: it reads no faster; None has no limit.
        down: times at which a replica is stopped: it neither fetches nor counts as live, and takes no checkpoints.
        stuck: times at which it lives and reads nothing.
        checkpoint_shift_ms: of a replica: its checkpoints come so much later than its leader's.
    """

    name: str
    node: str
    lag_records: int = 0
    records_per_second: int | None = None
    down: tuple[Span, ...] = ()
    stuck: tuple[Span, ...] = ()
    checkpoint_shift_ms: int = 0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A story of a metadata log; it begins empty, at 0.

    Attributes:
        title: for people.
        duration_ms: how long it lasts.
        settings: of the policies.
        nodes: of all nodes.
        appends: what the leader writes.
        elections: when the leader is elected anew, which begins a leader epoch; the first is 1, at time 0.
        replicas: followers.
        listeners: of any node.
    """

    title: str
    duration_ms: int
    settings: StartSettings
    nodes: NodeSettings
    appends: tuple[Append, ...] = ()
    elections: tuple[int, ...] = ()
    replicas: tuple[Reader, ...] = ()
    listeners: tuple[Reader, ...] = ()


def read_scenario(data: bytes, file: str) -> Scenario:
    """Reads a scenario file.

    Args:
        data: the whole file.
        file: its name, for messages.

    Raises:
        UsageError: no TOML, or an unknown, missing or impossible value; the message names it.
    """
    try:
        text = data.decode()
        _refuse_costly(text, file)
        table = tomllib.loads(text)
    except UnicodeDecodeError as error:
        raise UsageError(f"is no text in UTF-8: byte {error.start}", path=file) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"is no TOML: {error}", path=file) from None
    return _scenario(_Table(table, "", file))


def _refuse_costly(text: str, file: str) -> None:
    """What costs tomllib more memory than a scenario is worth: for a key of n parts n * n / 2 pointers, for a number 128 bytes a digit.

    Raises:
        UsageError: a longer word, or more dots, than a scenario has outside of its strings and comments.
    """
    dots = 0
    for at, bare in _bare(text):
        word = _LONG_WORD.search(bare)
        if word is not None:
            line = text.count("\n", 0, at + word.start()) + 1
            raise UsageError(f"line {line}: a name or a number of more than {WORD_CHARACTERS_MAX} characters", path=file)
        dots += bare.count(".")
        if dots > DOTS_MAX:
            raise UsageError(f"more than {DOTS_MAX} dots outside of strings and comments", path=file)


def _bare(text: str) -> Iterator[tuple[int, str]]:
    """What is neither in a string nor a comment, and where it begins; up to the first string that does not end, as TOML ends there."""
    at = 0
    while (opened := _OPENS.search(text, at)) is not None:
        yield at, text[at : opened.start()]
        closed = next((each for each in _CLOSES[opened[0]].finditer(text, opened.end()) if each[1] is not None), None)
        if closed is None:
            return
        at = closed.end()
    yield at, text[at:]


class _Table:
    """A table whose values are taken one by one; what is left over at the end nobody knows."""

    def __init__(self, values: Mapping[str, object], place: str, file: str) -> None:
        self._left = dict(values)
        self._place = place
        self._file = file

    def wrong(self, name: str, expected: str, found: object) -> UsageError:
        where = f"{self._place}.{name}" if self._place else name
        text = "none" if found is None else repr(found)
        return UsageError(f"{where}: expected {expected}, found {text if len(text) <= 60 else text[:57] + '...'}", path=self._file)

    def _take(self, name: str, default: object) -> object:
        if name not in self._left and default is None:
            raise self.wrong(name, "a value", None)
        return self._left.pop(name, default)

    def number(self, name: str, default: int | None, least: int, most: int) -> int:
        value = self._take(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.wrong(name, f"a whole number from {least} to {most}", value)
        return value

    def duration(self, name: str, default: int | str | None, least: int = 0, *, most: int = DURATION_MAX_MS) -> int:
        return self._duration(name, self._take(name, default), least, most)

    def _duration(self, name: str, value: object, least: int, most: int) -> int:
        match = _DURATION.fullmatch(value) if isinstance(value, str) else None
        milliseconds = int(match[1]) * _UNITS_MS[match[2]] if match else value
        if type(milliseconds) is not int or (milliseconds < least or milliseconds > most):
            raise self.wrong(name, f'a time like "90s", "4h" or "7d", or milliseconds, from {least} to {most} ms', value)
        return milliseconds

    def durations(self, name: str) -> tuple[int, ...]:
        return tuple(self._duration(f"{name}[{at}]", each, 0, DURATION_MAX_MS) for at, each in enumerate(self._list(name)))

    def spans(self, name: str) -> tuple[Span, ...]:
        spans: list[Span] = []
        for at, each in enumerate(self._list(name)):
            place = f"{name}[{at}]"
            if not isinstance(each, list) or len(each) != 2:
                raise self.wrong(place, 'two times, as in ["2h", "10h"]', each)
            begin, end = (self._duration(place, one, 0, DURATION_MAX_MS) for one in each)
            if begin >= end or (spans and begin < spans[-1].end_ms):
                raise self.wrong(place, "a time that ends after it begins, and begins after the one before it", each)
            spans.append(Span(begin, end))
        return tuple(spans)

    def _list(self, name: str) -> list[object]:
        value = self._take(name, [])
        if not isinstance(value, list) or len(value) > READERS_MAX:
            raise self.wrong(name, f"a list of at most {READERS_MAX}", value)
        return value

    def text(self, name: str, default: str | None) -> str:
        value = self._take(name, default)
        if not isinstance(value, str) or not value.isprintable() or len(value) > 200:
            raise self.wrong(name, "one line of text", value)
        return value

    def name(self, name: str, default: str | None) -> str:
        value = self._take(name, default)
        text = str(value) if type(value) is int else value
        if not isinstance(text, str) or _NAME.fullmatch(text) is None:
            raise self.wrong(name, "a name of letters, digits, dots, dashes and underscores", value)
        return text

    def table(self, name: str) -> _Table:
        return self._table(name, self._take(name, {}))

    def _table(self, name: str, value: object) -> _Table:
        if not isinstance(value, dict):
            raise self.wrong(name, "a table", value)
        return _Table(value, f"{self._place}.{name}" if self._place else name, self._file)

    def tables(self, name: str) -> list[_Table]:
        return [self._table(f"{name}[{at}]", each) for at, each in enumerate(self._list(name))]

    def flatten(self) -> None:
        """Makes one table of all tables in it, their names joined by dots."""
        waiting = list(self._left.items())
        self._left = {}
        while waiting:
            name, value = waiting.pop()
            if isinstance(value, dict):
                waiting += [(f"{name}.{below}", each) for below, each in value.items()]
            else:
                self._left[name] = value

    def end(self) -> None:
        if self._left:
            raise self.wrong(next(iter(self._left)), "no such name", next(iter(self._left.values())))


def _scenario(top: _Table) -> Scenario:
    title = top.text("title", "")
    duration_ms = top.duration("duration", None, 1)
    elections = top.durations("elections")
    if list(elections) != sorted(set(elections)) or any(not 0 < each < duration_ms for each in elections):
        raise top.wrong("elections", "ascending times within the duration", list(elections))
    settings, nodes = _config(top.table("config")), _nodes(top.table("nodes"))
    appends = tuple(_append(each, duration_ms, nodes.segment_bytes) for each in top.tables("append"))
    replicas = tuple(_replica(each) for each in top.tables("replica"))
    names = [each.name for each in replicas]
    if len(set(names)) < len(names) or LEADER in names:
        raise top.wrong("replica", f"names that differ, none of them {LEADER}", names)
    listeners = tuple(_listener(each, {LEADER, *names}) for each in top.tables("listener"))
    readers = [(each.node, each.name) for each in listeners]
    if len(set(readers)) < len(readers):
        raise top.wrong("listener", "names that differ on each node", readers)
    top.end()
    return Scenario(title, duration_ms, settings, nodes, appends, elections, replicas, listeners)


def _config(table: _Table) -> StartSettings:
    """The names are Kafka's. Without quotes TOML takes their dots for tables in tables."""
    table.flatten()
    settings = StartSettings(
        table.number("metadata.max.retention.bytes", DEFAULT_RETENTION_BYTES, -1, BYTES_MAX),
        table.duration("metadata.max.retention.ms", DEFAULT_RETENTION_MS, -1),
        table.duration("metadata.start.offset.lag.time.max.ms", DEFAULT_LAG_TIME_MAX_MS),
    )
    table.end()
    return settings


def _nodes(table: _Table) -> NodeSettings:
    standard = NodeSettings()
    nodes = NodeSettings(
        table.number("segment_bytes", standard.segment_bytes, 1, COUNT_MAX),
        table.duration("checkpoint_interval", standard.checkpoint_interval_ms),
        table.number("checkpoint_record_bytes", standard.checkpoint_record_bytes, 1, BYTES_MAX),
        table.duration("clean_interval", standard.clean_interval_ms, 1),
        table.number("checkpoint_bytes", standard.checkpoint_bytes, 1, BYTES_MAX),
        table.number("checkpoint_growth_bytes", standard.checkpoint_growth_bytes, 0, COUNT_MAX),
    )
    table.end()
    return nodes


def _append(table: _Table, duration_ms: int, segment_bytes: int) -> Append:
    begin = table.duration("from", 0, most=duration_ms)
    end = table.duration("until", duration_ms, most=duration_ms)
    if begin >= end:
        raise table.wrong("until", f"a time after {begin} ms", end)
    append = Append(
        Span(begin, end),
        table.duration("every", None, 1),
        table.number("records", 1, 1, COUNT_MAX),
        table.number("bytes", 100, 61, min(COUNT_MAX, max(61, segment_bytes))),
    )
    table.end()
    if (end - begin) // append.every_ms * append.records > OFFSET_MAX:
        raise table.wrong("records", "offsets that fit an int64", append.records)
    return append


def _replica(table: _Table) -> Reader:
    name = table.name("id", None)
    reader = Reader(
        name,
        name,
        table.number("lag_records", 0, 0, COUNT_MAX),
        table.number("records_per_second", 0, 0, COUNT_MAX) or None,
        table.spans("down"),
        table.spans("stuck"),
        table.duration("checkpoint_shift", 0),
    )
    table.end()
    return reader


def _listener(table: _Table, nodes: set[str]) -> Reader:
    name, node = table.name("name", None), table.name("node", LEADER)
    if node not in nodes:
        raise table.wrong("node", f"one of {', '.join(sorted(nodes)[:10])}", node)
    reader = Reader(
        name,
        node,
        table.number("lag_records", 0, 0, COUNT_MAX),
        table.number("records_per_second", 0, 0, COUNT_MAX) or None,
        stuck=table.spans("stuck"),
    )
    table.end()
    return reader
