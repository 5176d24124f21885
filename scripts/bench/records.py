#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka records
"""How many records a second and core are read from segments: by the reader of single records, in columns, as Arrow, and to Parquet.

Each way is measured in a process of its own, in turn on the same file from the page cache, in one run; the least processor time of each
counts. It includes the headers of the batches and their checksums. Peak memory is that of the whole process.

With ``--broker`` a real broker writes the records, and Kafka's DumpLogSegments and two consumers read them next to ours. Their time is that
of their whole process; the broker's own is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from dump_speed import batch, sized, varint
from kafka_classpath import KAFKA_VERSION, kafka_classpath
from kafka_node import KafkaNode
from kafka_speed import peak_bytes

from formats.log.batch_headers import HeaderBlock, HeaderReader
from formats.log.record_groups import GROUP_BYTES, RecordGroup, record_groups
from formats.log.records import read_records
from snaprebuild.storage.local.pipe_reader import piped

WORDS = ("order", "invoice", "region", "currency", "amount", "pending", "shipped", "retry", "payload", "total", "leader", "epoch")
HUGE_RECORDS = 1_000_000
ROW_GROUP_ROWS = 100_000


class OpenSegment:
    """A segment of which ranges are read with one call each."""

    def __init__(self, path: str) -> None:
        self.name = path
        self._fd = os.open(path, os.O_RDONLY)
        self.size_bytes = os.fstat(self._fd).st_size

    def read_into(self, position_bytes: int, buffer: memoryview) -> int:
        """Fills the buffer from a position. Returns how many bytes there were."""
        return os.preadv(self._fd, [buffer], position_bytes)


# ---------------------------------------------------------------------------------------------------- data


class Mix:
    """Records: keys of 0 to 40 bytes, values of 40 to 160, a tenth with headers, a twentieth of the keys and values null."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._text = "".join(
            f'{{"{self._word()}":"{self._word()}","id":{self._random.randrange(10**9)}}}' for _ in range(20_000)
        ).encode()

    def _word(self) -> str:
        return self._random.choice(WORDS)

    def _bytes(self, least: int, most: int) -> bytes | None:
        if self._random.random() < 0.05:
            return None
        start = self._random.randrange(len(self._text) - most)
        return self._text[start : start + self._random.randint(least, most)]

    def fields(self) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Key, value and headers of a record."""
        headers = []
        if self._random.random() < 0.1:
            headers = [("trace-id", self._bytes(8, 16)) for _ in range(self._random.randint(1, 3))]
        return self._bytes(0, 40), self._bytes(40, 160), headers

    def record(self, number: int) -> bytes:
        """A record of an offset delta."""
        key, value, headers = self.fields()
        coded = b"".join(sized(name.encode()) + sized(each) for name, each in headers)
        body = b"\0" + varint(number // 3) + varint(number) + sized(key) + sized(value) + varint(len(headers)) + coded
        return sized(body)

    def batch(self, count: int, codec: str) -> bytes:
        """A batch of that many records."""
        return batch(b"".join(map(self.record, range(count))), count, codec=codec)

    def count(self) -> int:
        """A random number of records for a usual batch."""
        return self._random.randint(1, 400)


def write_segment(path: Path, codec: str, shape: str, mebibytes: int) -> None:
    """A segment of about a size, uncompressed."""
    mix = Mix()
    with path.open("wb") as file:
        if shape == "huge":
            file.write(mix.batch(HUGE_RECORDS, codec))
            return
        size_bytes = 0
        records = 0
        while size_bytes < mebibytes << 20:
            count = 1 if shape == "tiny" else mix.count()
            file.write(mix.batch(count, codec))
            records += count
            size_bytes = records * 135 + (61 * records if shape == "tiny" else 0)


# ---------------------------------------------------------------------------------------------------- ways


def _blocks(source: OpenSegment) -> Iterator[HeaderBlock]:
    return iter(HeaderReader(source, check_crc=True, read_markers=False, block_bytes=GROUP_BYTES))


def _groups(source: OpenSegment, *, with_headers: bool = True) -> Iterator[tuple[HeaderBlock, RecordGroup]]:
    for block in _blocks(source):
        for group in record_groups(source, block, with_headers=with_headers, piped=piped):
            yield block, group


def one_by_one(source: OpenSegment) -> int:
    """Counts the records, read one by one."""
    count = 0
    for block in _blocks(source):
        for row in range(len(block)):
            header = block.header(row)
            position = int(block.position_bytes[row])
            data = bytearray(header.size_bytes)
            source.read_into(position, memoryview(data))
            for _ in read_records(header, bytes(data), position=position, piped=piped):
                count += 1
    return count


def columns(source: OpenSegment) -> int:
    """Counts the records, read in columns."""
    return sum(len(group) for _, group in _groups(source))


def arrow(source: OpenSegment) -> int:
    """Counts the records, read into batches of Arrow with their headers."""
    from snaprebuild.consume.arrow_batches import arrow_batch

    return sum(len(arrow_batch(group, block, topic="orders", partition=0)) for block, group in _groups(source))


def arrow_without_headers(source: OpenSegment) -> int:
    """Counts the records, read into batches of Arrow without their headers."""
    from snaprebuild.consume.arrow_batches import DEFAULT_COLUMNS, arrow_batch

    names = DEFAULT_COLUMNS[:-1]
    groups = _groups(source, with_headers=False)
    return sum(len(arrow_batch(group, block, names, topic="orders", partition=0)) for block, group in groups)


def parquet(source: OpenSegment) -> int:
    """To a file of Parquet, as pyarrow writes it by default, in row groups of some 100,000 rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from snaprebuild.consume.arrow_batches import arrow_batch, record_schema

    count = 0
    waiting = []
    with tempfile.TemporaryFile() as file, pq.ParquetWriter(file, record_schema()) as writer:
        for block, group in _groups(source):
            waiting.append(arrow_batch(group, block, topic="orders", partition=0))
            count += len(group)
            if sum(map(len, waiting)) >= ROW_GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting))
                waiting = []
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting))
    return count


WAYS: dict[str, Callable[[OpenSegment], int]] = {
    "one by one": one_by_one,
    "columns": columns,
    "Arrow": arrow,
    "Arrow, no headers": arrow_without_headers,
    "Parquet": parquet,
}


def measure(way: str, path: str) -> dict[str, float]:
    """One pass in this process."""
    if way in {"Arrow", "Arrow, no headers", "Parquet"}:
        import pyarrow.parquet  # noqa: F401

        import snaprebuild.consume.arrow_batches  # noqa: F401
    source = OpenSegment(path)
    WAYS[way](OpenSegment(os.devnull))
    begun = time.process_time()
    count = WAYS[way](source)
    seconds = time.process_time() - begun
    return {"records": count, "seconds": seconds, "peak": peak_bytes(os.getpid())}


# ---------------------------------------------------------------------------------------------------- next to a broker


TOPIC = "bench"


def produce(node: KafkaNode, codec: str, mebibytes: int) -> int:
    """The usual records. Returns how many."""
    from confluent_kafka import Producer

    mix = Mix()
    settings = {"bootstrap.servers": node.address, "compression.type": codec, "linger.ms": 20, "batch.num.messages": 400}
    producer = Producer(settings | {"queue.buffering.max.messages": 1_000_000})
    count = (mebibytes << 20) // 135
    for number in range(count):
        key, value, headers = mix.fields()
        typed: list[tuple[str, str | bytes | None]] = [*headers]
        producer.produce(TOPIC, key=key, value=value, headers=typed or None, partition=0)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()
    return count


def consume(address: str, count: str) -> dict[str, float]:
    """Consumes with librdkafka, in this process."""
    from confluent_kafka import Consumer, TopicPartition

    begun = time.process_time()
    consumer = Consumer({"bootstrap.servers": address, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    records = 0
    while records < int(count):
        records += len(consumer.consume(10_000, 1.0))
    consumer.close()
    return {"records": records, "seconds": time.process_time() - begun, "peak": peak_bytes(os.getpid())}


def child_seconds(command: Sequence[str]) -> float:
    """Processor time of a command, whose output goes nowhere."""
    before = os.times()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def next_to_a_broker(scratch: Path, codec: str, options: argparse.Namespace) -> str:
    """A row: the same records by ours, and by what there is."""
    java = ["java", "-cp", kafka_classpath(), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    with KafkaNode(scratch / codec, tiering=False) as node:
        node.start()
        node.create_topic(TOPIC, {"segment.bytes": 1 << 30})
        count = produce(node, codec, options.mebibytes)
        path = node.log_dir / f"{TOPIC}-0" / f"{0:020d}.log"
        seconds = dict.fromkeys(BESIDE, float("inf"))
        for _ in range(options.rounds):
            for way in ("columns", "Arrow"):
                seconds[way] = min(seconds[way], measured(way, str(path))["seconds"])
            seconds["librdkafka"] = min(seconds["librdkafka"], measured("librdkafka", node.address, str(count))["seconds"])
            consumer = ["--bootstrap-server", node.address, "--topic", TOPIC, "--num-records", str(count), "--timeout", "60000"]
            tools = {
                "Java's consumer": ["ConsumerPerformance", *consumer],
                "DumpLogSegments": ["DumpLogSegments", "--print-data-log", "--files", str(path)],
            }
            for name, (main_class, *rest) in tools.items():
                command = [*java, f"org.apache.kafka.tools.{main_class}", *rest]
                seconds[name] = min(seconds[name], child_seconds(command))
    cells = [f"{count / seconds[way] / 1000:,.0f}" for way in BESIDE]
    return f"| {codec}: {count:,} | {' | '.join(cells)} |"


BESIDE = ("columns", "Arrow", "librdkafka", "Java's consumer", "DumpLogSegments")


def measured(*arguments: str) -> dict[str, float]:
    """One pass in a process of its own."""
    command = [sys.executable, __file__, "--measure", *arguments]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(arguments: Sequence[str]) -> int:
    """Prints a row for each file."""
    parser = argparse.ArgumentParser(prog="scripts/bench/records.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of each way; the least time counts (default: %(default)s)")
    parser.add_argument("--mebibytes", type=int, default=64, help="of records in a segment (default: %(default)s)")
    parser.add_argument("--only", action="append", help="rows whose name has this text; may be given again")
    parser.add_argument("--broker", action="store_true", help="next to DumpLogSegments and consumers instead")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.measure:
        way, *rest = options.measure
        print(json.dumps(consume(*rest) if way == "librdkafka" else measure(way, *rest)))
        return 0
    if options.broker:
        print(f"| written by Kafka {KAFKA_VERSION}; records, 1,000 a second and core | {' | '.join(BESIDE)} |")
        print(f"|---{'|---' * len(BESIDE)}|")
        with tempfile.TemporaryDirectory(prefix="bench-records-") as scratch:
            for codec in ("none", "lz4"):
                print(next_to_a_broker(Path(scratch), codec, options), flush=True)
        return 0
    rows = [("usual", codec) for codec in ("none", "lz4", "zstd", "snappy", "gzip")]
    rows += [("tiny", "none"), ("tiny", "lz4"), ("huge", "none"), ("huge", "lz4")]
    print(f"| records, 1,000 a second and core (ratio; peak MiB) | {' | '.join(WAYS)} |")
    print(f"|---{'|---' * len(WAYS)}|")
    with tempfile.TemporaryDirectory(prefix="bench-records-") as scratch:
        path = Path(scratch) / f"{0:020d}.log"
        for shape, codec in rows:
            name = f"{shape}, {codec}"
            if options.only and not any(each in name for each in options.only):
                continue
            write_segment(path, codec, shape, options.mebibytes)
            best = dict.fromkeys(WAYS, float("inf"))
            peak = dict.fromkeys(WAYS, 0.0)
            counts = set()
            for _ in range(options.rounds):
                for way in WAYS:
                    found = measured(way, str(path))
                    counts.add(found["records"])
                    best[way] = min(best[way], found["seconds"] / found["records"])
                    peak[way] = max(peak[way], found["peak"])
            assert len(counts) == 1, counts
            least = best["one by one"]
            cells = [f"{1e-3 / best[way]:,.0f} ({least / best[way]:.1f}; {peak[way] / 2**20:.0f})" for way in WAYS]
            print(f"| {name}: {counts.pop():,} | {' | '.join(cells)} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
