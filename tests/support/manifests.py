"""The bundled log directories, and what Kafka said about them (``fixtures/*/manifest.json``)."""

import functools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.partition.producer_snapshot import ProducerEntry

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURES = REPOSITORY / "fixtures"
AIVEN = FIXTURES / "aiven-layout"
"""Stores that the plugin of Aiven wrote."""
READS: dict[str, Any] = json.loads((AIVEN / "plugin-reads.json").read_text())
"""The plugin's own report of each of them."""
CLUSTER = FIXTURES / "kraft-cluster3"
"""The disks of three nodes of one cluster."""
LONG_AGO = ("--as-of", "2026-11-20")
"""Before the records: no producer has expired."""
DAMAGED = FIXTURES / "damaged"
"""Has ``logs``, which are like those of every other bundled directory, and the known corruptions, which have tests of their own."""


@dataclass(frozen=True)
class SegmentFixture:
    """A segment, and the state of every producer after it.

    ``entries`` were made by Kafka's own classes: after the last batch below ``snapshot_offset``, from the first segment on disk.
    """

    path: Path
    base_offset: int
    bytes: int
    batches: int
    max_magic: int
    max_timestamp: int
    next_offset: int
    snapshot_offset: int
    entries: frozenset[ProducerEntry]


@dataclass(frozen=True)
class PartitionFixture:
    """A partition of a bundled log directory."""

    fixture: str
    partition: str
    directory: Path
    segments: tuple[SegmentFixture, ...]
    manifest: dict[str, Any] = field(hash=False, repr=False)

    def __str__(self) -> str:
        return f"{self.fixture}/{self.partition}"

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner has been at it: batches may be gone that the broker once saw."""
        return "compacted" in self.partition


def bundled(name: str) -> Path:
    """A bundled directory, without the known corruptions."""
    return DAMAGED / "logs" if name == DAMAGED.name else FIXTURES / name


def is_known_corruption(path: Path) -> bool:
    """Whether it is in the directory of a known corruption, or of its control case."""
    return path.is_relative_to(DAMAGED) and path.relative_to(DAMAGED).parts[:1] not in ((), ("logs",), ("manifest.json",))


@functools.cache
def partition_fixtures() -> tuple[PartitionFixture, ...]:
    """Every partition of every manifest. Fails when there is none."""
    found = []
    for path in sorted(FIXTURES.glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        for partition, about in manifest.get("partitions", {}).items():
            directory = path.parent / "logs" / partition
            segments = tuple(_segment_fixture(directory, segment) for segment in about["segments"])
            found.append(PartitionFixture(path.parent.name, partition, directory, segments, about))
    assert found, f"no manifest below {FIXTURES}"
    return tuple(found)


def _segment_fixture(directory: Path, segment: dict[str, Any]) -> SegmentFixture:
    facts = {name: segment[name] for name in SegmentFixture.__dataclass_fields__ if name not in ("path", "entries")}
    entries = [ProducerEntry(**entry) for entry in segment["entries"]]
    assert len({entry.producer_id for entry in entries}) == len(entries)
    return SegmentFixture(path=directory / segment["segment"], entries=frozenset(entries), **facts)
