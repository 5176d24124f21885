"""A client of a few requests, written by hand from the protocol: what no client library sends, such as the same batch twice.

The versions are such that brokers from 2.7 to 4.3 take them.
"""

import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

PRODUCE, FETCH, LIST_OFFSETS, INIT_PRODUCER_ID, OFFSETS_FOR_LEADER_EPOCH, DESCRIBE_PRODUCERS = 0, 1, 2, 22, 23, 61
CONSUMER = -1
NOT_LEADING_YET = (3, 5, 6)
"""Error codes of a broker that does not know yet that it leads a new partition."""
TIMEOUT_SECONDS = 60.0


class BrokerError(Exception):
    """The broker answered with an error code."""

    def __init__(self, request: str, code: int) -> None:
        super().__init__(f"{request}: error code {code}")
        self.code = code


@dataclass(frozen=True)
class ActiveProducer:
    """State of a producer in a broker, as DescribeProducers shows it."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


class Wire:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def init_producer_id(self) -> tuple[int, int]:
        """A new producer id and its epoch, of a producer without transactions."""
        answer = self._ask(INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 60_000))
        _, error, producer_id, epoch = struct.unpack(">ihqh", answer)
        if error:
            raise BrokerError("InitProducerId", error)
        return producer_id, epoch

    def produce(self, topic: str, batch: bytes, *, transactional_id: str | None = None, partition: int = 0) -> int:
        """Sends one batch, as it is, to a partition. Returns the offset that the broker gave it, or that it has had since before."""
        body = _nullable(transactional_id) + struct.pack(">hii", -1, 60_000, 1) + _nullable(topic)
        body += struct.pack(">iii", 1, partition, len(batch)) + batch
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while True:
            _, error, base_offset, _ = struct.unpack_from(">ihqq", self._ask(PRODUCE, 3, body), 4 + len(_nullable(topic)) + 4)
            if not error:
                return int(base_offset)
            if error not in NOT_LEADING_YET or time.monotonic() > deadline:
                raise BrokerError("Produce", error)
            time.sleep(0.1)

    def list_offsets(
        self, topic: str, timestamps: Sequence[int], *, replica_id: int = CONSUMER, read_committed: bool = False
    ) -> dict[int, tuple[int, int, int]]:
        """Answers of the leader of partition 0 to a consumer, or to a follower of this id, by the timestamp of the request. The
        answer is offset, timestamp of the record and leader epoch, -1 each for none. Brokers from 4.2 on answer this version."""
        name, found = topic.encode(), {}
        for each in timestamps:  # a request names a partition once
            body = struct.pack(">ib", replica_id, read_committed) + b"\x02" + bytes([len(name) + 1]) + name + b"\x02"
            body += struct.pack(">iiq", 0, -1, each) + b"\0\0" + struct.pack(">i", 60_000) + b"\0"
            answer = self._ask(LIST_OFFSETS, 11, body, is_flexible=True)
            _, error, timestamp, offset, epoch = struct.unpack_from(">ihqqi", answer, 4 + 1 + 1 + len(name) + 1)
            if error:
                raise BrokerError(f"ListOffsets {each}", error)
            found[each] = (offset, timestamp, epoch)
        return found

    def fetch(self, topic: str, offset: int, max_bytes: int) -> bytes:
        """Batches from partition 0, for a consumer: at least one, where there is any. Brokers from 2.3 on answer this version."""
        name = _nullable(topic)
        body = struct.pack(">iiiibiii", CONSUMER, 500, 1, max_bytes, 0, 0, -1, 1) + name
        body += struct.pack(">iiiqqi", 1, 0, -1, offset, -1, max_bytes) + struct.pack(">i", 0) + _nullable("")
        answer = self._ask(FETCH, 11, body)
        at = 4 + 2 + 4 + 4 + len(name) + 4
        _, error, _, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
        if error:
            raise BrokerError("Fetch", error)
        at += 34 + 16 * max(aborted, 0) + 4
        (size,) = struct.unpack_from(">i", answer, at)
        return answer[at + 4 : at + 4 + max(size, 0)]

    def end_of_leader_epoch(self, topic: str, epoch: int) -> tuple[int, int]:
        """Asks the leader of partition 0 about a leader epoch: returns the one that it found, and where that ends; -1 each for
        none."""
        name = _nullable(topic)
        body = struct.pack(">ii", CONSUMER, 1) + name + struct.pack(">iiii", 1, 0, -1, epoch)
        answer = self._ask(OFFSETS_FOR_LEADER_EPOCH, 3, body)
        error, _, found, end = struct.unpack_from(">hiiq", answer, 4 + 4 + len(name) + 4)
        if error:
            raise BrokerError("OffsetsForLeaderEpoch", error)
        return int(found), int(end)

    def describe_producers(self, topic: str, partition: int = 0) -> dict[int, ActiveProducer]:
        """The leader's state of each producer of a partition, by producer id. Brokers from 2.8 on answer."""
        name = topic.encode()
        body = b"\x02" + bytes([len(name) + 1]) + name + b"\x02" + struct.pack(">i", partition) + b"\0\0"
        answer = self._ask(DESCRIBE_PRODUCERS, 0, body, is_flexible=True)
        at = 4 + 1 + 1 + len(name) + 1 + 4
        (error,) = struct.unpack_from(">h", answer, at)
        if error:
            raise BrokerError("DescribeProducers", error)
        assert answer[at + 2] == 0, "an error message where there is no error"
        count, at = _unsigned_varint(answer, at + 3)
        found = {}
        row = struct.Struct(">qiiqiqb")
        for _ in range(count - 1):
            *fields, _ = row.unpack_from(answer, at)
            found[fields[0]] = ActiveProducer(*fields)
            at += row.size
        return found

    def _ask(self, api_key: int, version: int, body: bytes, *, is_flexible: bool = False) -> bytes:
        """The body of the response."""
        self._correlation_id += 1
        request = struct.pack(">hhi", api_key, version, self._correlation_id) + _nullable("wire") + b"\0" * is_flexible + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", self._read(4))
        answer = self._read(size)
        assert struct.unpack_from(">i", answer) == (self._correlation_id,)
        return answer[5 if is_flexible else 4 :]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data


def _nullable(text: str | None) -> bytes:
    return struct.pack(">h", -1) if text is None else struct.pack(">h", len(text.encode())) + text.encode()


def _unsigned_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            return value, at
