"""Records by Kafka's own consumer, and ours as the same rows."""

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka_classpath import java_output
from kafka_node import KafkaNode

from snaprebuild.library.record_stream import records

LEVELS = ("read_committed", "read_uncommitted")
COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")


def bytes_of(text: str) -> bytes | None:
    return None if text == "null" else base64.b64decode(text[1:])


def consumed(node: KafkaNode, questions: list[str]) -> list[list[dict[str, Any]]]:
    """The rows of each question (``ConsumedRecords.java``), by the consumer of the release of the broker."""
    answer = java_output("ConsumedRecords", arguments=[node.address], lines=questions, version=node.release.version)
    answers: list[list[dict[str, Any]]] = [[]]
    for line in answer:
        if not line:
            answers.append([])
            continue
        offset, timestamp, kind, key, value, *headers = line.split()
        pairs = [
            {"key": (bytes_of(name) or b"").decode(), "value": bytes_of(data)}
            for name, data in zip(headers[::2], headers[1::2], strict=True)
        ]
        answers[-1].append(
            {
                "offset": int(offset),
                "timestamp": int(timestamp),
                "timestampType": int(kind),
                "key": bytes_of(key),
                "value": bytes_of(value),
                "headers": pairs or None,
            }
        )
    return answers[:-1]


def ours(log_dir: Path | list[Path] | tuple[()], topic: str, **options: Any) -> list[dict[str, Any]]:
    stream = records(log_dir, topics=topic, columns=COLUMNS, **options)
    table = pa.Table.from_batches(list(stream), stream.schema)
    milliseconds = pa.compute.divide(table["timestamp"].cast(pa.int64()), 1000).fill_null(-1)  # of a record without a time
    rows: list[dict[str, Any]] = table.set_column(1, "timestamp", milliseconds).to_pylist()
    return rows
