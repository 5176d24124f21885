#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Predicts a rebuild on Spark at a size that no one has at hand: the real packing, simulated, and arithmetic.

Prints the tables of docs/internals/scale.md; `--check` fails when the page holds others.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark.job import RANGES_PER_TASK, WAVE_SEGMENTS_MAX, waves_of
from snaprebuild.spark.packing import pack, task_bytes, tasks_for
from snaprebuild.spark.read_rows import ranges_of
from snaprebuild.storage.s3.object_bytes import RANGE_BYTES
from snaprebuild.storage.store import FileIdentity

PAGE = Path(__file__).resolve().parents[2] / "docs" / "internals" / "scale.md"
GIB = 1 << 30
TB = 10**12
PB = 10**15
SEGMENT_BYTES = GIB

LISTING_BYTES = 750
"""Bytes of memory in the driver's Python for each listed segment of four objects, measured by ``scripts/bench/spark_driver.py``."""
PLAN_BYTES = 2_200
"""Bytes of memory in the driver's Python for each segment after the plan, its listing included. A partition had 10 segments, as in
the model; with 100 it was 990."""
TASK_ROW_BYTES = 1_680
"""Memory of the driver for each segment of a wave, in addition: its task, its row, and that row in Arrow."""
RESULT_BYTES = 440
"""Memory of the driver for the result of each boundary; of two waves."""
LISTING_SECONDS = 310e-6
"""For each segment, in addition to the time of the store: the driver, one thread, measured while other work ran."""
SUMMARY_BYTES = 76
"""Bytes of a summary for each producer in its segment, uncompressed; measured with 1,000 producers."""
OBJECTS_OF_A_SEGMENT = 4

GET_PRICE = 0.0004e-3
LIST_PRICE = 0.005e-3
PUT_PRICE = 0.005e-3
CORE_HOUR_PRICE = 0.05
"""US dollars: list prices of one region as commonly published, assumed and not asked for."""
GETS_A_SECOND_OF_A_PREFIX = 5_500
"""S3 promises at least so many GET requests per second for each prefix."""


@dataclass(frozen=True)
class Day:
    """One day of a fleet.

    Attributes:
        brokers: of the fleet.
        partitions: of all.
        size_bytes: written in a day, one replica of it.
        cores: of the cluster.
        core_rate: bytes that one core reads in a second.
        producers: in a segment.
    """

    brokers: int = 1_000
    partitions: int = 100_000
    size_bytes: int = PB
    cores: int = 2_000
    core_rate: float = 300e6
    producers: int = 1_000


@dataclass(frozen=True)
class Balance:
    """How the reading of a set of partitions is cut and packed.

    Attributes:
        segments: of all partitions.
        tasks: of all waves.
        waves: jobs one after the other.
        worst: the greatest of max/mean bytes of a task, over the waves.
        largest_share: of the largest partition in all bytes.
    """

    segments: int
    tasks: int
    waves: int
    worst: float
    largest_share: float


def zipf_sizes(partitions: int, total: int, exponent: float, seed: int) -> list[int]:
    """Bytes of each partition, by Zipf's law, in an order that does not follow the size."""
    weights = 1 / np.arange(1, partitions + 1) ** exponent
    sizes = (weights / weights.sum() * total).astype(np.int64)
    np.random.default_rng(seed).shuffle(sizes)
    return [int(size) for size in sizes]


def segments_of(size_bytes: int) -> list[int]:
    """Bytes of each segment of a partition."""
    whole, rest = divmod(size_bytes, SEGMENT_BYTES)
    return [SEGMENT_BYTES] * whole + [rest] * (rest > 0)


def balance(sizes: list[int]) -> Balance:
    """Cuts and packs as the job does."""
    one = ReadTask("/s.log", "/s.index", 0, FileIdentity(0, 0, 0, "e"), check_crc=True)
    segments = tasks = waves = 0
    worst = 0.0
    for wave in waves_of(map(segments_of, sizes), len):
        total = sum(sum(mine) for mine in wave)
        target = -(-task_bytes(total) // RANGES_PER_TASK)
        packed: dict[int, list[int]] = {}
        ranges: list[int] = []
        for mine in wave:
            for size in mine:
                if size not in packed:
                    identity = FileIdentity(size, 0, 0, "e")
                    packed[size] = [row.size_bytes for row in ranges_of(0, replace(one, identity=identity), target)]
                ranges += packed[size]
            segments += len(mine)
        count = tasks_for(total, len(ranges))
        loads = np.bincount(pack(ranges, count), weights=ranges, minlength=count)
        worst = max(worst, float(loads.max() / loads.mean()))
        tasks += count
        waves += 1
    return Balance(segments, tasks, waves, worst, max(sizes) / sum(sizes))


def packing_table(seed: int = 1) -> list[str]:
    """Rows of the simulation."""
    rows = [
        "| partitions | bytes | Zipf exponent | largest partition | segments | tasks | max/mean bytes a task |",
        "|" + "---|" * 7,
    ]
    for partitions, total, exponent in (
        (1, 64 * GIB, 0.0),
        (100, TB, 2.0),
        (1_000, 10 * TB, 1.5),
        (100_000, PB, 0.8),
        (100_000, PB, 1.0),
        (100_000, PB, 1.2),
    ):
        shares = balance(zipf_sizes(partitions, total, exponent, seed))
        size = "1 PB" if total == PB else f"{total / TB:.2g} TB"
        rows.append(
            f"| {partitions:,} | {size} | {exponent} | {shares.largest_share:.1%} "
            f"| {shares.segments:,} | {shares.tasks:,} | {shares.worst:.2f} |"
        )
    return rows


def model_table(day: Day) -> list[str]:
    """Rows of the arithmetic."""
    segments = day.size_bytes / SEGMENT_BYTES + day.partitions / 2
    gets = day.size_bytes / RANGE_BYTES + day.partitions / 2
    small = 3 * day.partitions  # the end of each log, of its time index, and a snapshot to begin with
    lists = OBJECTS_OF_A_SEGMENT * segments / 1000
    puts = segments
    read_price = (gets + small) * GET_PRICE
    list_price = lists * LIST_PRICE
    put_price = puts * PUT_PRICE
    core_seconds = day.size_bytes / day.core_rate
    compute = core_seconds / 3600 * CORE_HOUR_PRICE
    shuffle = segments * day.producers * SUMMARY_BYTES
    listing = segments * LISTING_BYTES
    wave = min(segments, WAVE_SEGMENTS_MAX) * TASK_ROW_BYTES
    plan = segments * PLAN_BYTES
    results = segments * RESULT_BYTES
    rate = day.size_bytes / (core_seconds / day.cores)
    a_second = gets / (core_seconds / day.cores)
    rows = [
        ("segments", f"{segments:,.0f}"),
        ("GET", f"{gets + small:,.0f}, {read_price:,.0f} USD"),
        ("LIST", f"{lists:,.0f}, {list_price:,.2f} USD"),
        ("PUT of all boundaries", f"{puts:,.0f}, {put_price:,.2f} USD"),
        ("time of one core", f"{core_seconds / 3600:,.0f} h at {day.core_rate / 1e6:.0f} MB/s, {compute:,.0f} USD"),
        (f"time with {day.cores:,} cores", f"{core_seconds / day.cores / 60:,.0f} min, {rate / 1e9:,.0f} GB/s"),
        ("requests a second", f"{a_second:,.0f}, of {math.ceil(a_second / GETS_A_SECOND_OF_A_PREFIX)} prefixes at least"),
        (f"shuffle, {day.producers:,} producers a segment", f"{shuffle / 1e9:,.0f} GB"),
        ("driver's Python: what was listed", f"{listing / 2**20:,.0f} MiB, {segments * LISTING_SECONDS / 60:,.0f} min"),
        ("driver's Python: the plan, and at the end", f"{plan / 2**20:,.0f} MiB, {(plan + results) / 2**20:,.0f} MiB"),
        (f"driver's Python: a wave of {WAVE_SEGMENTS_MAX:,} segments, besides", f"{wave / 2**20:,.0f} MiB"),
        ("all of it", f"{read_price + list_price + put_price + compute:,.0f} USD a day"),
    ]
    return ["| what | result |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def main() -> int:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when docs/internals/scale.md holds other tables")
    arguments = parser.parse_args()
    tables = ["\n".join(packing_table()), "\n".join(model_table(Day()))]
    print("\n\n".join(tables))
    if arguments.check:
        page = PAGE.read_text()
        return 0 if all(table in page for table in tables) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
