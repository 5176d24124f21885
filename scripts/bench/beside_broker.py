#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Shows how a run next to a real broker delays its producers, and which pages the run leaves in the broker's page cache.

A broker of Kafka is started with a topic of some GiB, whose rolled segments are not in the page cache. A producer sends at a fixed rate all
the time. Its latencies are reported in windows, which alternate: only that, and `verify` of the large topic in one of several ways, again
and again. Each window with a run is compared with the mean of the two next to it; medians of these ratios count.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from kafka_classpath import KAFKA_VERSION, java_program, kafka_classpath
from kafka_node import KafkaNode
from page_cache import MIB, cached_of_machine, file_system, set_cached
from resident_pages import resident_bytes

RATIO_MAX = 1.05
GROWTH_BYTES_MAX = 64 << 20
RECORD_BYTES = 1000
SEGMENT_BYTES = 256 << 20
SETTLE_RECORDS = 1000
"""Records that are acknowledged before a window begins, and, in a window with a run, while it runs."""

UNBOUND = "no bounds"
WARM_UP_WINDOWS = 5
WAYS = {
    "default": (),
    "default, --jobs 1": ("--jobs", "1"),
    UNBOUND: ("--set", f"max_read_rate={10**12}", "--set", "priority=usual", "--set", "fill_page_cache=true"),
}
"""Options of `verify`; the last row shows the effect of the options of the others."""


class Producer:
    """The process that produces."""

    def __init__(self, address: str, topic: str, records_per_second: int) -> None:
        """Starts it."""
        command = [*java_program("ProduceLatency"), address, topic, str(records_per_second), str(RECORD_BYTES)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def window(self, records: int) -> list[int]:
        """Percentiles of this many records, in microseconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(records, file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the producer has ended"
        return [int(each) for each in line.split()]

    def end(self) -> None:
        """Ends it."""
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def running(log_dir: Path, cold: list[Path], options: tuple[str, ...]) -> Iterator[None]:
    """While `verify` of the large topic runs, and begins again where it ends."""
    is_over = threading.Event()
    process = None
    code = "from snaprebuild.cli.main import main; main()"
    command = [sys.executable, "-c", code, "verify", str(log_dir), "--topic", "bulk", *options]

    def again() -> None:
        nonlocal process
        while not is_over.is_set():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            assert process.wait() in (0, 1, 130, -signal.SIGTERM), f"verify ended with {process.returncode}"
            for path in cold if "fill_page_cache=true" in options and not is_over.is_set() else ():
                set_cached(path, is_hot=False)

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        with contextlib.suppress(ProcessLookupError):
            if process is not None:
                process.send_signal(signal.SIGTERM)
        thread.join()


def fill(node: KafkaNode, total_bytes: int) -> list[Path]:
    """Produces the large topic. Returns its rolled segments, of which nothing is cached."""
    settings = {"segment.bytes": SEGMENT_BYTES}
    node.create_topic("bulk", settings)
    node.create_topic("live", settings)
    per_call = 512 << 20
    for _ in range(max(total_bytes // per_call, 1)):
        arguments = ["--topic", "bulk", "--num-records", str(min(per_call, total_bytes) // RECORD_BYTES)]
        arguments += ["--record-size", str(RECORD_BYTES), "--throughput", "-1", "--bootstrap-server", node.address]
        node.tool("org.apache.kafka.tools.ProducerPerformance", *arguments)
    rolled = sorted((node.log_dir / "bulk-0").glob("*.log"))[:-1]
    for path in rolled:
        set_cached(path, is_hot=False)
    return rolled


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=3.0, help="of the large topic; default: 3")
    parser.add_argument("--rate", type=int, default=500, help="records of 1,000 B that are produced each second; default: 500")
    parser.add_argument("--seconds", type=int, default=10, help="of a window; default: 10")
    parser.add_argument("--way", action="append", choices=list(WAYS), help="only this way; may be given several times")
    parser.add_argument("--repeat", type=int, default=5, help="windows of each way; default: 5")
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="on the disk that is measured; default: this one")
    parser.add_argument("--check", action="store_true", help="fail where p99 or the page cache grow more than promised by default")
    options = parser.parse_args()
    kafka_classpath()
    with (
        tempfile.TemporaryDirectory(prefix="bench-broker-", dir=options.directory) as scratch,
        KafkaNode(Path(scratch), tiering=False) as node,
    ):
        node.start()
        rolled = fill(node, int(options.gib * 2**30))
        processors = len(os.sched_getaffinity(0))
        system = f"{file_system(node.log_dir)}, Linux {os.uname().release}"
        print(f"Kafka {KAFKA_VERSION}, {processors} processors, {system}")
        print(
            f"{options.rate} records of {RECORD_BYTES} B a second, acks=all; {options.repeat} windows of {options.seconds} s each way"
        )
        producer = Producer(node.address, "live", options.rate)
        try:
            return measure(node, rolled, producer, options)
        finally:
            producer.end()


def measure(node: KafkaNode, rolled: list[Path], producer: Producer, options: argparse.Namespace) -> int:
    """Prints the table. Returns the exit code."""
    records = options.rate * options.seconds
    for _ in range(WARM_UP_WINDOWS):
        producer.window(records)  # Java compiles what it runs often
    alone = [producer.window(records)]
    ways = {way: further for way, further in WAYS.items() if not options.way or way in options.way}
    windows_by_way: dict[str, list[tuple[list[int], float, float]]] = {way: [] for way in ways}
    left = dict.fromkeys(ways, 0)
    machine = dict.fromkeys(ways, 0)
    for _ in range(options.repeat):
        for way, further in ways.items():
            before = sum(resident_bytes(str(path))[0] for path in rolled)
            cached = cached_of_machine()
            with running(node.log_dir, rolled, further):
                producer.window(SETTLE_RECORDS)
                latencies = producer.window(records)
            left[way] = max(left[way], sum(resident_bytes(str(path))[0] for path in rolled) - before)
            machine[way] = max(machine[way], cached_of_machine() - cached)
            for path in rolled if "fill_page_cache=true" in further else ():
                set_cached(path, is_hot=False)
            producer.window(SETTLE_RECORDS)
            alone.append(producer.window(records))
            p50, p99 = ((alone[-2][place] + alone[-1][place]) / 2 for place in (0, 2))
            windows_by_way[way].append((latencies, latencies[0] / p50, latencies[2] / p99))
    print(
        "\nproduce latency in us, medians of windows |  p50     p90     p99   p99.9 | least p99 | ratio p50, p99 (quartiles) | left, MiB"
    )
    print(f"{'nothing else':40} {_medians(alone)} | {min(each[2] for each in alone):9} |")
    ok = True
    for way, rows in windows_by_way.items():
        p50 = statistics.median(row[1] for row in rows)
        low, p99, high = statistics.quantiles((row[2] for row in rows), n=4) if len(rows) > 1 else [rows[0][2]] * 3
        least = min(row[0][2] for row in rows)
        cells = f"{least:9} | {p50:9.2f} {p99:7.2f} ({low:.2f}, {high:.2f})  | {left[way] / MIB:9.1f}"
        print(f"{'verify, ' + way:40} {_medians([row[0] for row in rows])} | {cells}")
        ok &= way == UNBOUND or (p99 <= RATIO_MAX and left[way] <= GROWTH_BYTES_MAX)
    added = options.seconds * options.rate * RECORD_BYTES / MIB
    growth = ", ".join(f"{machine[way] / MIB:.0f} ({way})" for way in ways)
    print(
        f"\nMiB by which the page cache of the machine grew at most in a window, {added:.0f} of the producer among them: {growth}"
    )
    return 0 if ok or not options.check else 1


def _medians(windows: list[list[int]]) -> str:
    return " ".join(f"{statistics.median(each[place] for each in windows):7.0f}" for place in range(4))


if __name__ == "__main__":
    sys.exit(main())
