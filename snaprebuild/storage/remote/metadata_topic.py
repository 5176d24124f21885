"""``__remote_log_metadata`` of a running cluster: read from its beginning, and appended to. Only this module uses confluent-kafka.

Source: ``TopicBasedRemoteLogMetadataManager``: its producer writes with ``acks=all`` and idempotence, its consumer reads all
records.
"""

from __future__ import annotations

import concurrent.futures
import logging
import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from formats.partition.partition_metadata import ZERO_UUID
from formats.remote.remote_log_metadata import METADATA_TOPIC
from snaprebuild import __version__
from snaprebuild.errors import OutcomeUnknownError, ReadFailedError, UsageError, WriteFailedError
from snaprebuild.storage.remote.client_config import SECURITY_SETTINGS

__all__ = ["PATIENCE_SECONDS", "ClusterTopic", "MetadataTopic"]

PATIENCE_SECONDS = 60.0
"""Longest time for an answer; the time for all attempts at one record, too."""

POLL_SECONDS = 0.1

OFFSETS_TOPIC = "__consumer_offsets"

BUFFER_KIB = 16 << 10
"""Bytes that a consumer fetches ahead."""

NOT_APPENDED = frozenset(
    {
        "CLUSTER_AUTHORIZATION_FAILED",
        "MSG_SIZE_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "TOPIC_DELETION_DISABLED",
        "_UNKNOWN_PARTITION",
        "_UNKNOWN_TOPIC",
    }
)
"""Errors that prove that the log does not have a record. After any other error it may have it."""

LOGIN_SETTINGS = "security.protocol, sasl.mechanism, sasl.username and sasl.password"
TLS_SETTINGS = "security.protocol and the settings of ssl, such as ssl.ca.location"
HOPELESS = {"_AUTHENTICATION": LOGIN_SETTINGS, "_SSL": TLS_SETTINGS, "SASL_AUTHENTICATION_FAILED": LOGIN_SETTINGS}
"""Errors that do not pass with time, each with the settings to look at."""

CONNECTION_SETTINGS = "security.protocol and the settings of ssl"
"""The settings to look at where brokers close the connection, or nobody listens."""

_SETTING_NAME = re.compile(r"[a-z0-9]+(?:\.[a-z0-9]+)+")
_LOG_PREFIX = re.compile(r"\w+ \[[^\]]*\] \[[^\]]*\]: ")
_SERVER_PREFIX = re.compile(r"(?:\w+://)?[^ ]+/(?:bootstrap|\d+): ")
_STATE = re.compile(r" \(after \d+ms in state \w+(?:, \d+ identical error\(s\) suppressed)?\)")


class _ClientLog(logging.Handler):
    """Keeps the last line of the client's log in place of printing it: some failures are reported nowhere else.

    Attributes:
        last: its text without the names of clients and threads; None before the first one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: str | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Called from within ``poll`` of a client."""
        self.last = _LOG_PREFIX.sub("", record.getMessage(), count=1)


@dataclass(frozen=True, slots=True)
class ClusterTopic:
    """A topic of the cluster.

    Attributes:
        topic_id: 16 bytes; None if the brokers are too old to report it.
        partitions: their numbers.
        has_leaders: a broker leads one of them.
    """

    topic_id: bytes | None
    partitions: frozenset[int]
    has_leaders: bool = True


class MetadataTopic:
    """The topic, over three connections of one client library: to describe, to read, to append.

    Not for several threads. Creates nothing in the cluster but records.
    """

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, str],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
        options: tuple[str, str] = ("--produce-to", "--producer-config"),
    ) -> None:
        """Connects to nothing yet.

        Args:
            servers: ``HOST:PORT``, several with commas between.
            settings: further ones, by their names in librdkafka.
            patience_seconds: longest time for an answer.
            options: of the command that name the servers and the settings.

        Raises:
            UsageError: the package is not installed, or the client does not accept the settings.
        """
        self._servers = servers
        self._patience = patience_seconds
        self._options = options
        self._kafka = _library(options[0])
        self._trouble: str | None = None
        self._hopeless: str | None = None
        self._advice = ""
        self._log = _ClientLog()
        self._is_reached = False
        self._next: dict[int, int] = {}
        base = {"client.id": f"snaprebuild-{__version__}", **settings, "bootstrap.servers": servers}
        reading = {
            "group.id": "snaprebuild",  # never joined: the library asks for one
            **base,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            # As brokers read it. An aborted record would count for them, too.
            "isolation.level": "read_uncommitted",
            "allow.auto.create.topics": False,
            "queued.max.messages.kbytes": BUFFER_KIB,
            "fetch.wait.max.ms": 50,  # after this time the topic is silent, and each check of it waits this long
        }
        writing = {**base, "enable.idempotence": True, "acks": "all", "linger.ms": 0}
        writing.setdefault("message.timeout.ms", str(int(patience_seconds * 1000)))
        self._producer: Any = None
        self._writing = writing
        self._admin = self._made(self._kafka.admin.AdminClient, base)
        self._reading = reading
        self._reader: Any = None

    @property
    def _consumer(self) -> Any:
        """The client that reads, made when it is first needed: it looks for the coordinator of its group at once."""
        if self._reader is None:
            self._reader = self._made(self._kafka.Consumer, self._reading)
        return self._reader

    def _made(self, kind: Any, settings: Mapping[str, object]) -> Any:
        log = logging.Logger(__name__)  # of no tree: nothing of it is printed
        log.addHandler(self._log)
        try:
            return kind({**settings, "error_cb": self._on_error}, logger=log)
        except self._kafka.KafkaException as error:
            # Names alone: the text may have a value, and passwords are among them.
            known = {*settings, *SECURITY_SETTINGS}
            named = [name for name in dict.fromkeys(_SETTING_NAME.findall(str(error))) if name in known]
            what = f": look at {', '.join(named)}" if named else ""
            raise UsageError(f"{self._options[1]}: the client does not take these settings{what}") from None

    def _on_error(self, error: Any) -> None:
        """Called from within ``poll`` of a client."""
        if error.name() in HOPELESS:
            self._hopeless = error.str()
            self._advice = f"; check {HOPELESS[error.name()]}, in the file of {self._options[1]}"
        elif error.name() == "_ALL_BROKERS_DOWN":
            if not self._is_reached and self._hopeless is None:
                self._hopeless = self._trouble or self._log.last or "none of them can be reached"
                self._advice = f"; check {self._options[0]}, and {CONNECTION_SETTINGS}, in the file of {self._options[1]}"
        else:
            self._trouble = error.str()

    def _failed(self, what: str, error: object | None = None) -> str:
        if error is not None:
            return f"{what}: {error}"
        reason = self._hopeless or self._trouble
        if reason is None:
            return f"{what}: no answer within {self._patience:.0f} s"
        return f"{what}: {_STATE.sub('', _SERVER_PREFIX.sub('', reason, count=1))}{self._advice}"

    def close(self) -> None:
        """Closes the connections."""
        if self._reader is not None:
            self._reader.close()
        if self._producer is not None:
            self._producer.purge()
            self._producer.flush(0)

    # ---- what there is ----

    def topics(self, names: Sequence[str]) -> dict[str, ClusterTopic]:
        """The named topics that the cluster has. The request creates none.

        Raises:
            ReadFailedError: the cluster does not answer, or refuses to.
        """
        futures = self._admin.describe_topics(self._kafka.TopicCollection(list(names)), request_timeout=self._patience)
        self._wait_for(set(futures.values()))
        topics = {}
        for name, future in futures.items():
            error = future.exception()
            if error is None:
                topic = future.result()
                numbers = frozenset(each.id for each in topic.partitions)
                has_leaders = any(each.leader is not None and each.leader.id >= 0 for each in topic.partitions)
                topics[name] = ClusterTopic(_bytes_of(topic.topic_id), numbers, has_leaders)
            elif not isinstance(error, self._kafka.KafkaException):
                raise error
            elif error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                is_answer = not error.args[0].name().startswith("_")  # else an error of the client, which gives no better reason
                what = f"the topic {name} cannot be described" if is_answer else "the brokers do not answer"
                raise ReadFailedError(self._failed(what, error.args[0].str()), path=self._servers)
        return topics

    def settings_of(self, topic: str) -> dict[str, str | None]:
        """The settings of a topic by name, with the defaults of its brokers.

        Raises:
            ReadFailedError: the cluster does not answer, or refuses to.
        """
        resource = self._kafka.admin.ConfigResource(self._kafka.admin.ResourceType.TOPIC, topic)
        future = self._admin.describe_configs([resource], request_timeout=self._patience)[resource]
        self._wait_for({future})
        try:
            entries = future.result()
        except self._kafka.KafkaException as error:
            message = self._failed(f"the settings of {topic} cannot be read", error.args[0].str())
            raise ReadFailedError(message, path=self._servers) from error
        return {name: each.value for name, each in entries.items()}

    def may_create_topic(self) -> bool:
        """Whether the first read would make brokers create ``__consumer_offsets``, which no client has needed so far.

        The library looks for the coordinator of a group that it never joins, as soon as the client is made
        (``KafkaApis.handleFindCoordinatorRequest``; seen with brokers of 3.9.2 and 4.3.1). It takes no client without a group.

        Raises:
            ReadFailedError: the cluster does not answer.
        """
        self.cluster_id()  # the cluster answers, so that an error below is about permissions, and without these nothing is created
        try:
            return OFFSETS_TOPIC not in self.topics([OFFSETS_TOPIC])
        except ReadFailedError:
            return False

    def cluster_id(self) -> str | None:
        """Id of the cluster; None if its brokers do not report it.

        Raises:
            ReadFailedError: the cluster does not answer.
        """
        future = self._admin.describe_cluster(request_timeout=self._patience)
        self._wait_for({future})
        if future.exception() is not None:
            return None  # not permitted, or too old
        cluster_id = future.result().cluster_id
        return cluster_id if isinstance(cluster_id, str) else None

    def _wait_for(self, waiting: set[Any]) -> None:
        """Waits for answers.

        Raises:
            ReadFailedError: the cluster does not answer.
        """
        deadline = time.monotonic() + self._patience
        while waiting:
            _, waiting = concurrent.futures.wait(waiting, timeout=POLL_SECONDS)
            self._admin.poll(0)
            if waiting and (self._hopeless is not None or time.monotonic() > deadline):
                raise ReadFailedError(self._failed("the brokers do not answer"), path=self._servers)
        self._is_reached = True

    # ---- reading ----

    def place(self, partition: int) -> str:
        """The name of a partition of the topic in messages."""
        return f"{self._servers}: {METADATA_TOPIC}-{partition}"

    def first_offset(self, partition: int) -> int:
        """The first offset of a partition's log; if it is above 0, records were deleted.

        Raises:
            ReadFailedError: it is unknown.
        """
        return self.bounds(partition)[0]

    def bounds(self, partition: int) -> tuple[int, int]:
        """First offset of a partition's log, and the offset after its last one.

        Raises:
            ReadFailedError: they are unknown.
        """
        place = self._kafka.TopicPartition(METADATA_TOPIC, partition)
        try:
            low, high = self._consumer.get_watermark_offsets(place, timeout=self._patience)
        except self._kafka.KafkaException as error:
            raise ReadFailedError(self._failed("cannot be read", error.args[0].str()), path=self.place(partition)) from error
        return int(low), int(high)

    def read_new(self, partition: int) -> Iterator[tuple[int, bytes | None]]:
        """The records after the last one that this yielded, up to the present end of the log.

        Args:
            partition: of the topic.

        Yields:
            Offset and value, in their order.

        Raises:
            ReadFailedError: it cannot be read.
        """
        for offset, _, value in self._messages(partition):
            yield offset, value

    def read_up_to(self, partition: int, end: int) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """The records below an offset, which the log has reached.

        Args:
            partition: of the topic.
            end: offset after the last one that is wanted.

        Yields:
            Offset, key and value, in their order.

        Raises:
            ReadFailedError: the log cannot be read.
        """
        if end <= self.first_offset(partition):
            return
        with closing(self._messages(partition)) as messages:
            for offset, key, value in messages:
                if offset >= end:
                    return
                yield offset, key, value
                if offset == end - 1:
                    return

    def _messages(self, partition: int) -> Generator[tuple[int, bytes | None, bytes | None]]:
        """Offset, key and value of the records after the last one that was read, up to the present end of the log."""
        start = self._next.get(partition)
        if start is None:
            start = self.first_offset(partition)
        self._consumer.assign([self._kafka.TopicPartition(METADATA_TOPIC, partition, start)])
        deadline = time.monotonic() + self._patience
        while True:
            message = self._consumer.poll(POLL_SECONDS)
            if message is None:
                if self._hopeless is not None or time.monotonic() > deadline:
                    raise ReadFailedError(self._failed("cannot be read"), path=self.place(partition))
                continue
            error = message.error()
            if error is None:
                deadline = time.monotonic() + self._patience
                self._next[partition] = message.offset() + 1
                yield message.offset(), message.key(), message.value()
            elif error.name() == "_PARTITION_EOF":
                self._next[partition] = message.offset()
                self._consumer.unassign()
                return
            elif error.name() != "GROUP_AUTHORIZATION_FAILED":  # the client joins no group
                raise ReadFailedError(self._failed("cannot be read", error.str()), path=self.place(partition))

    # ---- writing ----

    def append(self, partition: int, value: bytes) -> None:
        """Appends a record, and waits until all replicas in sync have it.

        Args:
            partition: of the topic.
            value: of the record; its key is null.

        Raises:
            WriteFailedError: the topic does not have it.
            OutcomeUnknownError: the topic may have it.
        """
        if self._producer is None:
            self._producer = self._made(self._kafka.Producer, self._writing)
        outcomes: list[Any] = []
        place = self.place(partition)
        try:
            self._producer.produce(
                METADATA_TOPIC, value=value, partition=partition, on_delivery=lambda error, _message: outcomes.append(error)
            )
        except (self._kafka.KafkaException, BufferError) as refused:
            raise WriteFailedError(self._failed("a record was not produced", refused), path=place) from refused
        deadline = time.monotonic() + 2 * self._patience  # the library gives up a record after one, and reports it
        while not outcomes and self._hopeless is None and time.monotonic() < deadline:
            self._producer.poll(POLL_SECONDS)
        if outcomes and outcomes[0] is None:
            return
        self._producer.purge()  # so that nothing is sent whose result is not read
        self._producer.flush(0)
        error = outcomes[0] if outcomes else None
        reason = None if error is None else error.str()
        if error is not None and error.name() in NOT_APPENDED:
            raise WriteFailedError(self._failed("a record was refused", reason), path=place)
        raise OutcomeUnknownError(self._failed("whether a record was appended is not known", reason), path=place)


def _library(option: str) -> Any:
    """The client library, loaded when an option first needs it.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import confluent_kafka.admin
    except ImportError as error:
        raise UsageError(f"{option} needs a package: pip install confluent-kafka") from error
    return confluent_kafka


def _bytes_of(uuid: Any) -> bytes | None:
    """The 16 bytes of the library's UUID; None for the one that means none."""
    halves = (uuid.get_most_significant_bits(), uuid.get_least_significant_bits())
    data = b"".join((half & 2**64 - 1).to_bytes(8, "big") for half in halves)
    return None if data == ZERO_UUID else data
