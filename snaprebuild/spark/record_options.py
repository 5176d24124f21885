"""The options of the data source ``kafka_records``: those of Spark's Kafka source where it has them."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

import pyarrow as pa
from msgspec.structs import replace

from snaprebuild.consume.arrow_batches import COLUMN_TYPES, DEFAULT_COLUMNS, record_schema
from snaprebuild.consume.query_arguments import (
    assigned_partitions,
    check_one_selection,
    chosen_columns,
    moments_of,
    offsets_of,
    pattern_of,
    topic_ids_from,
)
from snaprebuild.consume.record_query import EARLIEST, LATEST, DamageMode, Moments, NoMatch, Offsets, RecordIsolation, RecordQuery
from snaprebuild.errors import UsageError
from snaprebuild.spark.packing import RATED_TASKS
from snaprebuild.spark.source_options import (
    as_location,
    check_option_names,
    flag_option,
    listed_names,
    mode_option,
    number_option,
    paths_option,
    positive_option,
    s3_options,
)
from snaprebuild.storage.private_keys import NO_KEYS, PrivateKeys
from snaprebuild.storage.store import S3Settings
from snaprebuild.tier.remote_store import StoreAccess, store_access

__all__ = ["RECORD_SCHEMA", "RecordOptions"]

Choice = TypeVar("Choice", bound=StrEnum)

OWN = (
    *("path", "paths", "columns", "topics", "subscribe", "subscribePattern", "assign", "startingOffsets", "endingOffsets"),
    *("startingTimestamp", "endingTimestamp", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    *("startingOffsetsByTimestampStrategy", "failOnDataLoss", "includeHeaders"),
    *("remote", "metadataLog", "privateKey", "keyPrefix", "topicIds"),
    *("isolation", "mode", "numPartitions", "maxReadRate", "pushFilters", "splitSegments"),
    *("s3EndpointUrl", "s3PathStyle", "s3Profile", "s3Anonymous", "s3RequesterPays", "s3SseCKeyFile"),
)

REFUSED = {
    "limit": "use DataFrame.limit",
    "maxRequests": "tasks of Spark that read records have no share of such a limit; maxReadRate slows them down",
    "maxReadBytes": "tasks of Spark that read records have no share of such a limit; maxReadRate slows them down",
}
"""Limits of the command and of the function that this source does not have, and what to do."""

RECORD_SCHEMA = record_schema(tuple(COLUMN_TYPES))
"""All columns (docs/reference/spark-sql.md)."""


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """The options of a read of records.

    Attributes:
        paths: partition directories, log directories or their ancestors.
        query: what is read.
        tasks: how many, at most; None for a number that suits the bytes.
        bytes_per_second: that all tasks together read; None for any number.
        takes_filters: leave parts out by the filters of the query.
        splits_segments: a large partition is read by several tasks.
        s3: how object stores are reached.
        remote: location of remote storage; None without one.
        metadata_logs: locations of directories with partitions of ``__remote_log_metadata``.
        private_keys: for copies that are encrypted.
        key_prefix: of the plugin, below the location.
    """

    paths: tuple[str, ...]
    query: RecordQuery
    tasks: int | None
    bytes_per_second: int | None
    takes_filters: bool
    splits_segments: bool
    s3: S3Settings
    remote: str | None = None
    metadata_logs: tuple[str, ...] = ()
    private_keys: PrivateKeys = NO_KEYS
    key_prefix: str = ""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> RecordOptions:
        """Reads the options of a ``DataFrameReader``, whose names are case-insensitive.

        Raises:
            UsageError: one is not known, or has an invalid value.
        """
        for name, advice in REFUSED.items():
            if options.get(name) is not None:
                raise UsageError(f"option {name}: {advice}")
        check_option_names(options, OWN)
        tasks = positive_option(options, "numPartitions")
        bytes_per_second = positive_option(options, "maxReadRate")
        if tasks is None and bytes_per_second is not None:
            tasks = RATED_TASKS  # of more tasks than run at once, each with its part, those that run would not reach the rate
        mode = DamageMode(mode_option(options))
        query = RecordQuery(
            topics=_names(options, "topics"),
            subscribe=_names(options, "subscribe"),
            subscribe_pattern=pattern_of("option subscribePattern", options.get("subscribePattern")),
            finds_pattern=True,
            assign=assigned_partitions("option assign", _json(options, "assign")),
            starting_offsets=_offsets(options, "starting", {"earliest": EARLIEST}),
            ending_offsets=_offsets(options, "ending", {"latest": LATEST}),
            starting_timestamp=_moments(options, "starting"),
            ending_timestamp=_moments(options, "ending"),
            no_match=_one_of(options, "startingOffsetsByTimestampStrategy", NoMatch, NoMatch.ERROR),
            isolation=_one_of(options, "isolation", RecordIsolation, RecordIsolation.READ_COMMITTED),
            mode=mode,
            columns=_columns(options, mode),
            topic_ids=topic_ids_from("option topicIds", _json(options, "topicIds")),
            fails_on_data_loss=flag_option(options, "failOnDataLoss", "true"),
        )
        check_one_selection(query)
        _check_remote(options)
        return cls(
            paths=() if options.get("remote") and not _has_paths(options) else paths_option(options),
            query=query,
            tasks=tasks,
            bytes_per_second=bytes_per_second,
            takes_filters=flag_option(options, "pushFilters"),
            splits_segments=flag_option(options, "splitSegments", "true"),
            s3=s3_options(options),
            remote=as_location(options["remote"]) if options.get("remote") else None,
            metadata_logs=tuple(map(as_location, listed_names(options.get("metadataLog")))),
            private_keys=PrivateKeys.of(listed_names(options.get("privateKey"))),
            key_prefix=options.get("keyPrefix", ""),
        )

    @property
    def schema(self) -> pa.Schema:
        """The requested columns."""
        return record_schema(self.query.columns)

    def with_columns(self, names: tuple[str, ...]) -> RecordOptions:
        """These options with other columns."""
        return dataclasses.replace(self, query=replace(self.query, columns=names))

    def store_access(self) -> StoreAccess | None:
        """The access to remote storage; None without one.

        Raises:
            UsageError: there is no such directory, or it is a log directory.
            ReadFailedError: it cannot be listed.
        """
        if self.remote is None:
            return None
        return store_access(
            self.remote,
            self.s3,
            metadata_logs=self.metadata_logs,
            private_keys=self.private_keys,
            key_prefix=self.key_prefix,
        )


def _has_paths(options: Mapping[str, str]) -> bool:
    return bool(options.get("path")) or options.get("paths", "[]") != "[]"


def _check_remote(options: Mapping[str, str]) -> None:
    """Raises UsageError if an option needs remote storage, and none is named."""
    if options.get("remote"):
        return
    for name in ("metadataLog", "privateKey", "keyPrefix", "topicIds"):
        if options.get(name):
            raise UsageError(f"option {name} is of remote storage: name it with the option remote")


def _names(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    """The topics of an option; none without it. An empty option selects nothing, and must not read everything."""
    names = tuple(listed_names(options.get(name)))
    if not names and options.get(name) is not None:
        raise UsageError(f"option {name}: expected names of topics with commas between them, found {options[name]!r}")
    return names


def _columns(options: Mapping[str, str], mode: DamageMode) -> tuple[str, ...]:
    names = chosen_columns("option columns", listed_names(options.get("columns")), tuple(COLUMN_TYPES))
    if not names:
        has_headers = flag_option(options, "includeHeaders")
        names = tuple(name for name in DEFAULT_COLUMNS if name != "headers" or has_headers)
    if mode is DamageMode.PERMISSIVE and "error" not in names:
        names = (*names, "error")
    return names


def _moments(options: Mapping[str, str], end: str) -> Moments | None:
    """The timestamps where the range starts or ends; None without one. That of all partitions counts before those of each."""
    moment = number_option(options, f"{end}Timestamp")
    name = f"{end}OffsetsByTimestamp"
    if moment is not None or options.get(name) is None:
        return moment
    return moments_of(f"option {name}", options[name])


def _offsets(options: Mapping[str, str], end: str, words: Mapping[str, int]) -> Offsets:
    """The offsets where the range starts or ends. A timestamp counts before them, as in Spark's Kafka source."""
    (word,) = words
    if _moments(options, end) is not None:
        return words[word]
    return offsets_of(f"option {end}Offsets", options.get(f"{end}Offsets", word), words)


def _json(options: Mapping[str, str], name: str) -> Any:
    text = options.get(name)
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        raise UsageError(f"option {name}: expected JSON, found {text!r}") from None


def _one_of(options: Mapping[str, str], name: str, kind: type[Choice], otherwise: Choice) -> Choice:
    text = options.get(name)
    if text is None:
        return otherwise
    try:
        return kind(text.lower())
    except ValueError:
        choices = ", ".join(each.value for each in kind)
        raise UsageError(f"option {name}: expected one of {choices}, found {text!r}") from None
