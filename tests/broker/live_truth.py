"""The states that were true of a live log at a moment: the files that were there together then, folded by Kafka's own classes."""

import itertools
import json
import os
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from log_dirs import Entries
from log_witness import JOURNAL, archived_name
from oracle import Oracle, Replay

from formats.partition.producer_snapshot import ProducerEntry

Files = Mapping[int, int]
"""Segments: base offset -> version."""
HEADER = struct.Struct(">qi")
LAST_OFFSET_DELTA = struct.Struct(">i")
HEADER_BYTES = 61


@dataclass(frozen=True)
class Listing:
    """Segments of a partition that lay there together, from when at the earliest until when at the latest."""

    files: Files
    earliest_ns: int
    latest_ns: int


@dataclass(frozen=True)
class Batch:
    """Where a batch is, and its offsets."""

    base_offset: int
    next_offset: int
    end_bytes: int


@dataclass(frozen=True)
class Fold:
    """Entries at some offsets, and the first offset of an open transaction there, None without any."""

    states: Mapping[int, Entries]
    undecided: Mapping[int, int | None]


class Archive:
    """The files and listings that the witness kept.

    Attributes:
        lost: segments (base offset, version) of whose files it has no bytes, by partition. Only a cleaner makes such ones.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        reported = defaultdict(list)
        self.lost: dict[str, set[tuple[int, int]]] = defaultdict(set)
        for line in (root / JOURNAL).read_text().splitlines():
            state = json.loads(line)
            if "lost" in state:
                base, version = state["lost"]
                self.lost[state["partition"]].add((base, version))
            else:
                reported[state["partition"]].append(state)
        self.listings: dict[str, list[Listing]] = {}
        for partition, states in reported.items():
            ends = [*(state["seen_ns"] for state in states[1:]), 2**63]
            self.listings[partition] = [
                Listing({int(base): version for base, version in state["files"].items()}, state["earliest_ns"], end)
                for state, end in zip(states, ends, strict=True)
            ]
        self._batches: dict[tuple[str, int, int], list[Batch]] = {}

    def of_moment(self, partition: str, begun_ns: int, ended_ns: int) -> list[Files]:
        """The sets of files that may have been there together between two moments. Segments that go one after the other went so, no
        matter who saw it."""
        seen = [each for each in self.listings[partition] if each.earliest_ns <= ended_ns and each.latest_ns >= begun_ns]
        found = [each.files for each in seen]
        first, last = min(map(min, filter(None, found)), default=0), max((min(each) for each in found if each), default=0)
        for files in [each.files for each in seen]:
            found += [{base: files[base] for base in files if base >= cut} for cut in files if first < cut <= last]
        return list({tuple(each.items()): each for each in found}.values())

    def batches(self, partition: str, base: int, version: int) -> list[Batch]:
        """The whole batches of a file of the archive."""
        key = (partition, base, version)
        if key not in self._batches:
            self._batches[key] = list(batches_in(self.path(*key).read_bytes()))
        return self._batches[key]

    def path(self, partition: str, base: int, version: int) -> Path:
        """Path of a version of a segment."""
        return self.root / partition / archived_name(base, version)

    def end_offset(self, partition: str, files: Files, sizes: Mapping[int, int]) -> int:
        """Log end, where the last segments were so long."""
        for base in sorted(sizes, reverse=True):
            ends = [each.next_offset for each in self.batches(partition, base, files[base]) if each.end_bytes <= sizes[base]]
            if ends:
                return ends[-1]
        return min(files)

    @cached_property
    def once(self) -> dict[str, Files]:
        """All that ever lay there, of partitions in which no segment was written anew."""
        found: dict[str, Files] = {}
        for partition, listings in self.listings.items():
            versions = {pair for each in listings for pair in each.files.items()}
            if len(dict(versions)) == len(versions):
                found[partition] = dict(sorted(versions))
                self._check_whole(partition, found[partition])
        return found

    def _check_whole(self, partition: str, files: Files) -> None:
        """From the first record to the last. A fold of less would call a right result wrong."""
        assert not self.lost[partition], f"{partition}: the witness missed {self.lost[partition]}"
        expected = 0
        for base, version in files.items():
            assert base == expected, f"{partition}: the witness has no segment at {expected}, the next one is at {base}"
            batches = self.batches(partition, base, version)
            expected = batches[-1].next_offset if batches else base


def batches_in(data: bytes) -> Iterator[Batch]:
    """Yields the whole batches of a segment."""
    at = 0
    while at + HEADER_BYTES <= len(data):
        base, length = HEADER.unpack_from(data, at)
        if at + 12 + length > len(data):
            return
        (delta,) = LAST_OFFSET_DELTA.unpack_from(data, at + 23)
        at += 12 + length
        yield Batch(base, base + delta + 1, at)


class Truth:
    """Folds of what the archive has."""

    def __init__(self, archive: Archive, oracle: Oracle, scratch: Path) -> None:
        self._archive = archive
        self._oracle = oracle
        self._scratch = scratch
        self._folds: dict[tuple[str, tuple[tuple[int, int], ...], int], Fold] = {}
        self._whole: dict[str, Fold] = {}

    def of_files(self, partition: str, files: Files, end: int) -> Fold | None:
        """The fold of these segments from empty state on, as far as they are below an offset; None where a batch crosses it."""
        used = {base: version for base, version in files.items() if base < end}
        key = (partition, tuple(used.items()), end)
        if key not in self._folds:
            if not self._is_boundary(partition, used, end):
                return None
            pieces = [(base, self._archive.path(partition, base, version), 0, None) for base, version in used.items()]
            if used:
                last = max(used)
                batches = self._archive.batches(partition, last, used[last])
                stop = max((each.end_bytes for each in batches if each.next_offset <= end), default=0)
                pieces[-1] = (*pieces[-1][:3], stop)
            # At the end also where the last batch of a compacted segment is below it: in between there is nothing.
            self._folds[key] = _fold(self._replayed(partition, pieces), end)
        return self._folds[key]

    def _is_boundary(self, partition: str, files: Files, end: int) -> bool:
        batches = self._archive.batches(partition, max(files), files[max(files)]) if files else []
        return not any(each.base_offset < end < each.next_offset for each in batches)

    def of_everything(self, partition: str, offsets: Iterable[int]) -> Fold:
        """The fold of all that was ever written, at some offsets; nothing where segments were written anew."""
        files = self._archive.once.get(partition)
        if files is None:
            return Fold({}, {})
        known = self._whole.get(partition)
        if known is None or not set(offsets) <= known.states.keys():
            wanted = sorted({*offsets, *(() if known is None else known.states)})
            self._whole[partition] = _fold(self._replayed(partition, list(self._split(partition, files, wanted))), None)
        return self._whole[partition]

    def _split(self, partition: str, files: Files, offsets: Sequence[int]) -> Iterator[tuple[int, Path, int, int | None]]:
        for base, version in files.items():
            batches = self._archive.batches(partition, base, version)
            ends = {each.next_offset: each.end_bytes for each in batches[:-1]}
            cuts = [(base, 0), *((offset, ends[offset]) for offset in offsets if offset in ends), (-1, None)]
            for (first, start), (_, stop) in itertools.pairwise(cuts):
                assert start is not None
                yield first, self._archive.path(partition, base, version), start, stop

    def _replayed(self, partition: str, pieces: Sequence[tuple[int, Path, int, int | None]]) -> Replay:
        directory = self._scratch / partition
        directory.mkdir(parents=True)
        try:
            for base, source, start, stop in pieces:
                target = directory / f"{base:020d}.log"
                if start == 0 and stop is None:
                    os.link(source, target)
                else:
                    target.write_bytes(source.read_bytes()[start:stop])
            replay = self._oracle.replay(directory, "recover")
        finally:
            shutil.rmtree(directory)
        assert replay.stopped is None, f"{partition}: {replay.stopped}"
        return replay


def _fold(replay: Replay, end: int | None) -> Fold:
    states, undecided = {0: frozenset[ProducerEntry]()}, dict[int, int | None]({0: None})
    for boundary in replay.boundaries:
        entries = frozenset(ProducerEntry(*row) for row in boundary.entries)
        for offset in {
            boundary.snapshot_offset,
            end if boundary is replay.boundaries[-1] and end is not None else boundary.snapshot_offset,
        }:
            states[offset], undecided[offset] = entries, boundary.first_undecided_offset
    return Fold(states, undecided)
