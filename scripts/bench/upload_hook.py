#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Times `prepare_upload` with a proven neighbour next to a bare read of the same segment, one after the other in one run."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from make_partition import Shape, make_partition

from snaprebuild import EnsuredSnapshot, ReplayOptions, prepare_upload
from snaprebuild.snapshots.engine.log_facts import log_end_offset
from snaprebuild.storage.log_dir import find_partitions

BLOCK_BYTES = 4 << 20

BEHIND = 16
"""Segments that are not measured: transactions of the others end there."""


def main() -> None:
    """Makes a partition and measures it."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--segments", type=int, default=60, help="rolled segments (60)")
    arguments.add_argument("--segment-mib", type=int, default=64, help="size of one (64)")
    arguments.add_argument("--batch-bytes", type=int, default=16384, help="mean size of a batch (16384)")
    arguments.add_argument("--producers", type=int, default=100, help="producer ids (100)")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-hook-") as scratch:
        directory = Path(scratch) / "t-0"
        size = chosen.segment_mib << 20
        make_partition(directory, Shape(chosen.batch_bytes, size * (chosen.segments + BEHIND), size, chosen.producers))
        complete(directory)
        measure(sorted(directory.glob("*.log"))[: chosen.segments])


def complete(directory: Path) -> None:
    """Adds the small files that a broker has next to its segments."""
    (log_dir,) = find_partitions([str(directory)]).log_dirs
    end = log_end_offset(log_dir.partitions[0])
    for segment in directory.glob("*.log"):
        segment.with_suffix(".timeindex").write_bytes(b"")
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n7 0\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: pnG54XS0SyKCbPV6BzO-OQ")
    (directory.parent / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {end}\n")


def measure(segments: list[Path]) -> None:
    """Prints what each way takes."""
    prepared = []
    bare = []
    replayed = []
    after: EnsuredSnapshot | None = None
    buffer = bytearray(BLOCK_BYTES)
    for segment in segments:
        read(segment, buffer)
        started = time.perf_counter()
        read(segment, buffer)
        bare.append(time.perf_counter() - started)
        started = time.perf_counter()
        after = prepare_upload(segment, after=after, options=ReplayOptions(as_of_ms=0)).snapshot
        prepared.append(time.perf_counter() - started)
        replayed.append(after.read_bytes / segment.stat().st_size)
    print(f"{len(segments)} segments; of each, replayed at most {max(replayed):.2f} times its bytes")
    for name, seconds in (("bare read", bare), ("prepare_upload", prepared)):
        print(f"{name:15} p50 {at(seconds, 0.5) * 1000:8.1f} ms   p99 {at(seconds, 0.99) * 1000:8.1f} ms")
    ratios = [one / other for one, other in zip(prepared, bare, strict=True)]
    print(f"{'ratio':15} p50 {at(ratios, 0.5):8.1f}      p99 {at(ratios, 0.99):8.1f}")


def read(path: Path, buffer: bytearray) -> None:
    """Every byte of a file, one block after the other."""
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def at(values: list[float], share: float) -> float:
    """A percentile."""
    return sorted(values)[min(int(len(values) * share), len(values) - 1)]


if __name__ == "__main__":
    main()
