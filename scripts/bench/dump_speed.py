#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Compares how long ``inspect dump --deep`` and Kafka's DumpLogSegments take for one batch, for records of many shapes.

Both are whole processes with their start, in turn on the same file, in one run; the least time of each counts. Their lines are compared,
too, where Kafka prints any: it ends at a record that it cannot read.
"""

from __future__ import annotations

import argparse
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compressed_batches import packed
from crc32c import crc32c
from kafka_classpath import KAFKA_VERSION, kafka_classpath

from formats.compression import CODECS

MEGABYTE = 1 << 20
TIMESTAMP_MS = 1_764_000_000_000
CONTROL = 0x20
TOOL = "org.apache.kafka.tools.DumpLogSegments"


def varint(value: int) -> bytes:
    """Zigzag coded."""
    rest = (value << 1) ^ (value >> 63)
    coded = bytearray()
    while rest >= 0x80:
        coded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes((*coded, rest))


def sized(data: bytes | None) -> bytes:
    """Bytes after their length, or null."""
    return varint(-1) if data is None else varint(len(data)) + data


def record(offset_delta: int, value: bytes = b"", *, key: bytes | None = None, headers: Sequence[bytes] = ()) -> bytes:
    """One record, whose headers have no value."""
    body = b"\0" + varint(0) + varint(offset_delta) + sized(key) + sized(value) + varint(len(headers))
    return sized(body + b"".join(sized(each) + sized(None) for each in headers))


def batch(records: bytes, count: int, *, codec: str = "none", attributes: int = 0) -> bytes:
    """A batch of magic 2."""
    data = records if codec == "none" else packed(codec, records)
    fields = (attributes | CODECS.index(codec), count - 1, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, count)
    checked = struct.pack(">hiqqqhii", *fields) + data
    return struct.pack(">qiibI", 0, 9 + len(checked), 0, 2, crc32c(checked)) + checked


def many(make: Callable[[int], bytes], bytes_each: int, total_bytes: int) -> tuple[bytes, int]:
    """Records of a total size, and their count."""
    count = total_bytes // bytes_each
    return b"".join(map(make, range(count))), count


def overrunning(inside: str) -> bytes:
    """A record whose own lengths are wrong, before zeros that are decompressed to the limit of a batch."""
    return batch(bytes.fromhex(inside) + bytes(200 * MEGABYTE), 1, codec="gzip")


def end_marker(number: int) -> bytes:
    """A commit marker of an own coordinator epoch."""
    return record(number, struct.pack(">hi", 0, number), key=struct.pack(">hh", 0, 1))


SHAPES: dict[str, Callable[[], bytes]] = {
    "one value of a megabyte": lambda: batch(record(0, b"v" * MEGABYTE), 1),
    "records without content": lambda: batch(*many(record, 9, MEGABYTE)),
    "records of 100 bytes": lambda: batch(*many(lambda number: record(number, b"v" * 90), 100, MEGABYTE)),
    "ten headers a record": lambda: batch(*many(lambda number: record(number, headers=[b""] * 10), 30, MEGABYTE)),
    "100,000 headers in one": lambda: batch(record(0, headers=[b"header"] * 100_000), 1),
    **{
        f"{codec}, 8 MiB of small records": lambda codec=codec: batch(*many(record, 9, 8 * MEGABYTE), codec=codec)  # type: ignore[misc]
        for codec in CODECS[1:]
    },
    "markers of a megabyte": lambda: batch(*many(end_marker, 22, MEGABYTE), attributes=CONTROL),
    "a value longer than its record": lambda: overrunning("0c 00 00 00 01 d00f 00"),
    "a header longer than its record": lambda: overrunning("0e 00 00 00 01 00 02 d00f"),
    "a record of no bytes": lambda: overrunning(""),
}


@dataclass
class Best:
    """The least seconds of several runs of one command, by the clock and of all processors, and the lines on stdout."""

    seconds: float = float("inf")
    processor_seconds: float = float("inf")
    lines: tuple[str, ...] = ()

    def run(self, command: Sequence[str]) -> None:
        """Once more."""
        begun = time.monotonic()
        before = os.times()
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds = time.monotonic() - begun
        after = os.times()
        used = after.children_user - before.children_user + after.children_system - before.children_system
        self.seconds, self.processor_seconds = min(self.seconds, seconds), min(self.processor_seconds, used)
        self.lines = tuple(line.rstrip() for line in done.stdout.splitlines())


def main(arguments: Sequence[str]) -> int:
    """Prints a row for each shape. Exit code 1 if ours took longer, or printed other lines."""
    parser = argparse.ArgumentParser(prog="scripts/bench/dump_speed.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each shape; the least time counts (default: %(default)s)")
    parser.add_argument("--shape", action="append", choices=SHAPES, help="may be given again (default: all)")
    options = parser.parse_args(arguments)
    kafka = ["java", "-cp", kafka_classpath(KAFKA_VERSION), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", TOOL]
    ours = [sys.executable, "-m", "snaprebuild", "inspect", "dump", "--deep"]
    write = sys.stdout.write
    failed = False
    write(
        f"| one batch, read by Kafka {KAFKA_VERSION} | stored bytes | lines | Kafka, s (CPU s) | ours, s (CPU s) | Kafka / ours |\n"
    )
    write("|---|---|---|---|---|---|\n")
    with tempfile.TemporaryDirectory(prefix="bench-dump-") as scratch:
        path = Path(scratch) / f"{0:020d}.log"
        for name in options.shape or SHAPES:
            path.write_bytes(SHAPES[name]())
            theirs = Best()
            mine = Best()
            for _ in range(options.rounds):
                theirs.run([*kafka, "--deep-iteration", "--files", str(path)])
                mine.run([*ours, str(path)])
            is_same = mine.lines == theirs.lines
            failed |= mine.seconds > theirs.seconds or not is_same
            cells = [name, f"{path.stat().st_size:,}", f"{len(mine.lines):,}" if is_same else "differ"]
            cells += [f"{each.seconds:.2f} ({each.processor_seconds:.2f})" for each in (theirs, mine)]
            write(f"| {' | '.join(cells)} | {theirs.seconds / mine.seconds:.1f} |\n")
            sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
