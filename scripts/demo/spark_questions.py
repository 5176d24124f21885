#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: spark
"""Six questions about log directories, asked in SQL.

Three are about batches and snapshots: who writes, which transactions hang, and what a broker would forget. With --remote three others are
asked, about records: who wrote to a topic, which keys were only aborted, and what would be lost without the disks.

An example: in a notebook, ``register(spark)`` and the statements are all that is needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Mapping

from pyspark.sql import SparkSession

from snaprebuild.errors import UsageError
from snaprebuild.spark import register
from snaprebuild.spark.session import opened_session

BATCH_COLUMNS = """
    topic, partition, directory, segment_base_offset, base_offset, last_offset, record_count, size_bytes, is_transactional, is_control,
    base_timestamp, max_timestamp, producer_id, marker_type
"""

QUESTIONS = {
    "How many producers write on each day, and how much?": """
SELECT date(timestamp_millis(max_timestamp)) AS day, topic,
       count(DISTINCT producer_id) AS producers, count(*) AS batches, sum(record_count) AS records, sum(size_bytes) AS bytes
FROM batches
WHERE producer_id >= 0 AND NOT is_control
GROUP BY ALL ORDER BY day, topic
""",
    "Which transactions hang: no marker, and no batch for longer than any coordinator waits?": """
WITH last_marker AS (
  SELECT directory, producer_id, max(base_offset) AS marker_offset
  FROM batches WHERE marker_type IS NOT NULL GROUP BY ALL)
SELECT topic, partition, producer_id, min(base_offset) AS first_offset, count(*) AS batches,
       timestamp_millis(min_by(base_timestamp, base_offset)) AS since,
       timestamp_millis(max_by(max_timestamp, base_offset)) AS last_batch  -- its time counts: not the newest one
FROM batches LEFT JOIN last_marker USING (directory, producer_id)
WHERE is_transactional AND NOT is_control AND base_offset > coalesce(marker_offset, -1)
GROUP BY directory, topic, partition, producer_id
HAVING max_by(max_timestamp, base_offset) < :as_of_ms - :late_after_ms
ORDER BY topic, partition, directory, first_offset
""",
    "At which boundaries would a broker forget producers that are not expired, and take their duplicates?": """
WITH written AS (     -- by each producer in each segment; what counts for expiry is its last batch or marker
  SELECT directory, topic, partition, segment_base_offset, producer_id,
         max_by(max_timestamp, base_offset) AS last_timestamp
  FROM batches WHERE producer_id >= 0 GROUP BY ALL),
boundaries AS (       -- the base offset of each segment, and the log end
  SELECT directory, segment_base_offset AS boundary FROM batches
  UNION SELECT directory, max(last_offset) + 1 FROM batches GROUP BY directory),
alive AS (            -- what a replay up to the boundary would know
  SELECT directory, topic, partition, boundary, producer_id
  FROM written JOIN boundaries USING (directory)
  WHERE segment_base_offset < boundary
  GROUP BY ALL
  HAVING max_by(last_timestamp, segment_base_offset) > :as_of_ms - :expiration_ms),
files AS (SELECT DISTINCT directory, snapshot_offset AS boundary, entry_count FROM snapshots),
entries AS (SELECT directory, snapshot_offset AS boundary, producer_id, true AS is_known FROM snapshots)
SELECT topic, partition, boundary,
       CASE WHEN any_value(entry_count) IS NULL THEN 'missing' WHEN any_value(entry_count) = 0 THEN 'empty' ELSE 'present' END AS snapshot,
       count(*) AS producers, count_if(is_known IS NULL) AS forgotten
FROM alive LEFT JOIN files USING (directory, boundary) LEFT JOIN entries USING (directory, boundary, producer_id)
GROUP BY directory, topic, partition, boundary
HAVING forgotten > 0
ORDER BY topic, partition, directory, boundary
""",
}

RECORD_COLUMNS = "topic, partition, offset, timestamp, key, value, producer_id, transaction"

RECORD_QUESTIONS = {
    "Who wrote to this topic between two times?": """
SELECT producer_id, count(*) AS records, count_if(transaction = 'aborted') AS aborted,
       min(offset) AS first_offset, max(offset) AS last_offset, min(timestamp) AS first_record, max(timestamp) AS last_record
FROM records
WHERE topic = :topic AND timestamp >= timestamp_millis(:from_ms) AND timestamp < timestamp_millis(:until_ms)
GROUP BY producer_id ORDER BY producer_id
""",
    "Which keys are in aborted transactions only?": """
SELECT topic, partition, hex(key) AS key_in_hex, count(*) AS records, min(offset) AS first_offset, max(offset) AS last_offset
FROM records
WHERE key IS NOT NULL
GROUP BY topic, partition, key
HAVING bool_and(transaction = 'aborted')
ORDER BY topic, partition, first_offset
""",
    "What would be lost above the end of remote storage, if the disks were lost?": """
WITH ends AS (SELECT topic, partition, max(offset) + 1 AS end_of_tier FROM tiered GROUP BY ALL)
SELECT topic, partition, coalesce(end_of_tier, 0) AS end_of_tier, count(*) AS records,
       sum(coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)) AS bytes, min(timestamp) AS oldest, max(timestamp) AS newest
FROM records LEFT JOIN ends USING (topic, partition)
WHERE offset >= coalesce(end_of_tier, 0)
GROUP BY topic, partition, end_of_tier
ORDER BY topic, partition
""",
}


def ask(session: SparkSession, paths: list[str], parameters: dict[str, int]) -> None:
    """Prints each question, its statement and the answer."""
    register(session)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    batches = session.read.format("kafka_batch_headers").option("columns", BATCH_COLUMNS).load(paths)
    snapshots = session.read.format("kafka_producer_snapshot").load(paths)
    # The questions read both more than once, and what is kept of the headers is small compared with the segments.
    for name, frame in (("batches", batches), ("snapshots", snapshots)):
        frame.cache().createOrReplaceTempView(name)
    for question, statement in QUESTIONS.items():
        answer(session, question, statement, parameters)


def ask_of_records(session: SparkSession, paths: list[str], remote: str, parameters: dict[str, int | str]) -> None:
    """Prints each question about records, its statement and the answer. Keys are shown, which may be personal data."""
    register(session)
    session.conf.set("spark.sql.session.timeZone", "UTC")
    source = session.read.format("kafka_records").option("failOnDataLoss", "false")
    # Remote storage has what is below the first segment on disk; control records, too, show where it ends.
    log = source.option("remote", remote).option("isolation", "read_uncommitted").option("columns", RECORD_COLUMNS).load(paths)
    log.cache().createOrReplaceTempView("records")
    tiered = source.option("remote", remote).option("isolation", "all").option("columns", "topic, partition, offset")
    tiered.load().createOrReplaceTempView("tiered")
    for question, statement in RECORD_QUESTIONS.items():
        answer(session, question, statement, parameters)


def answer(session: SparkSession, question: str, statement: str, parameters: Mapping[str, int | str]) -> None:
    """Prints a question, its statement, the values of its parameters in the form in which a session takes them, and the answer."""
    used = {name: value for name, value in parameters.items() if f":{name}" in statement}
    print(f"-- {question}\n{statement.strip()};")
    if used:
        print(f"-- spark.sql(statement, args={json.dumps(used)})")
    session.sql(statement, args=used).show(1000, truncate=False)


def main() -> None:
    """Reads the arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", help="partition directories, log directories or their ancestors")
    parser.add_argument(
        "--as-of", type=datetime.datetime.fromisoformat, help="moment of the questions, ISO 8601, UTC where it names no zone (now)"
    )
    parser.add_argument("--expiration-ms", type=int, default=86_400_000, help="producer.id.expiration.ms (86400000)")
    parser.add_argument("--max-timeout-ms", type=int, default=900_000, help="transaction.max.timeout.ms (900000)")
    parser.add_argument("--remote", help="remote storage of the logs, for the questions about records")
    parser.add_argument("--topic", default="", help="for the first question about records")
    moment = datetime.datetime.fromisoformat
    parser.add_argument("--from", dest="begin", type=moment, default=moment("1970-01-01"), help="of it, as --as-of (1970)")
    parser.add_argument("--until", type=moment, default=moment("9999-01-01"), help="of it, as --as-of (9999)")
    parser.add_argument("--master", help="of Spark (all cores of this machine)")
    arguments = parser.parse_args()
    as_of = time.time() if arguments.as_of is None else _in_some_zone(arguments.as_of).timestamp()
    parameters = {
        "as_of_ms": int(as_of * 1000),
        "expiration_ms": arguments.expiration_ms,
        # A broker counts a transaction as late five minutes after that (KIP-664).
        "late_after_ms": arguments.max_timeout_ms + 300_000,
    }
    try:
        with opened_session(arguments.master) as session:
            if arguments.remote is None:
                ask(session, arguments.paths, parameters)
            else:
                times = {"from_ms": _in_ms(arguments.begin), "until_ms": _in_ms(arguments.until)}
                ask_of_records(session, arguments.paths, arguments.remote, {"topic": arguments.topic, **times})
    except UsageError as error:
        parser.error(str(error))


def _in_ms(moment: datetime.datetime) -> int:
    return int(_in_some_zone(moment).timestamp() * 1000)


def _in_some_zone(moment: datetime.datetime) -> datetime.datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=datetime.UTC)


if __name__ == "__main__":
    main()
