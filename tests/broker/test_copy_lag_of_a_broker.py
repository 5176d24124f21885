"""``remote.copy.lag.*`` on a broker of 4.4: which segments it uploads, and that ``scan`` of its directory shows the same."""

import re
import time
from pathlib import Path

import pytest
from broker_settings import COPY_INTERVAL_MS
from command import in_json, snaprebuild
from kafka_classpath import NEWEST_BROKER
from kafka_node import KafkaNode
from log_dirs import snapshot_name

pytestmark = [pytest.mark.broker, pytest.mark.full]

HOUR_MS = 3_600_000
LATER_BYTES = 3000
SECONDS = 60.0
COMMON = {"remote.storage.enable": "true", "internal.segment.bytes": 1500, "retention.ms": -1, "local.retention.ms": -2}
TOPICS: dict[str, dict[str, object]] = {
    "default": {},
    "no-lag-by-size": {"remote.copy.lag.ms": HOUR_MS, "remote.copy.lag.bytes": 0},
    "by-size": {"remote.copy.lag.ms": HOUR_MS, "remote.copy.lag.bytes": LATER_BYTES},
    "by-age": {"remote.copy.lag.ms": 1, "remote.copy.lag.bytes": 10**12},
    "waits": {"remote.copy.lag.ms": HOUR_MS},
    "silent": {"remote.copy.lag.ms": HOUR_MS},
    "without-a-limit": {"remote.copy.lag.ms": -1, "remote.copy.lag.bytes": -1},
}
AT_ONCE = ("default", "no-lag-by-size", "by-age")
NEVER = ("waits", "silent", "without-a-limit")


def due_by_size(node: KafkaNode, topic: str) -> list[int]:
    """The rolled segments after which enough was written."""
    sizes = {int(path.stem): path.stat().st_size for path in (node.log_dir / f"{topic}-0").glob("*.log")}
    return [base for base in node.bases(topic)[:-1] if sum(sizes[each] for each in sizes if each > base) >= LATER_BYTES]


def wait_until_uploaded(node: KafkaNode, topic: str, expected: list[int]) -> None:
    deadline = time.monotonic() + SECONDS
    while node.remote_bases(topic) != expected:
        assert time.monotonic() < deadline, (topic, node.remote_bases(topic), expected)
        time.sleep(0.1)


def test_a_broker_uploads_what_scan_says_is_due(tmp_path: Path) -> None:
    with KafkaNode(tmp_path, version=NEWEST_BROKER) as node:
        node.start()
        for topic, settings in TOPICS.items():
            node.create_topic(topic, COMMON | settings)
            node.produce(topic, 150)
        for topic in AT_ONCE:
            wait_until_uploaded(node, topic, node.bases(topic)[:-1])
        by_size = due_by_size(node, "by-size")
        assert 0 < len(by_size) < len(node.bases("by-size")) - 1
        wait_until_uploaded(node, "by-size", by_size)
        assert [node.remote_bases(topic) for topic in NEVER] == [[], [], []]
        node.stop()

        # What waits is no alarm, and scan names just these segments.
        run = in_json("scan", node.log_dir)
        assert (run.exit_code, [each for each in run.document["findings"] if each["severity"] != "note"]) == (0, [])
        for topic in TOPICS:
            lag = run.partition(f"{topic}-0")["upload"]["copy_lag"]
            waiting = node.bases(topic)[len(node.remote_bases(topic)) : -1]
            assert ([] if lag is None else [lag["base_offset"], lag["segments"]]) == (waiting and [waiting[0], len(waiting)]), topic
        never = run.partition("without-a-limit-0")["upload"]["copy_lag"]
        assert (never["due_ms"], never["due_bytes"]) == (None, None)
        assert "Waiting on purpose, by remote.copy.lag.* (4.4)" in snaprebuild("scan", node.log_dir).text

        # A missing snapshot: the broker says nothing until the segment is due, and scan says so at once.
        (node.log_dir / "silent-0" / snapshot_name(node.bases("silent")[1])).unlink()
        text = snaprebuild("scan", node.log_dir, "--topic", "silent").text
        assert "1 snapshot missing in 1 of 1 partition" in text
        assert "lets this segment wait, so the broker logs nothing of it yet" in text
        mark = node.start()
        node.create_topic("marker", COMMON)
        node.produce("marker", 150)
        wait_until_uploaded(node, "marker", node.bases("marker")[:-1])
        time.sleep(3 * COPY_INTERVAL_MS / 1000)  # three more rounds of the copy tasks
        assert not re.search("NullPointerException", node.log_since(mark))
        node.set_topic("silent", {"remote.copy.lag.ms": 0})
        node.wait_for_log(r'NullPointerException: Cannot invoke "java.io.File.toPath\(\)"', mark, SECONDS)
        node.stop()
        assert "lets this segment wait" not in snaprebuild("scan", node.log_dir, "--topic", "silent").text
