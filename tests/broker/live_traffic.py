"""Clients that write to a live broker all the time: a process of its own, ended by a line on stdin.

Idempotent producers are closed and opened anew. Transactions over several topics are committed, aborted, left to their timeout, or fenced
by the next producer of the same name. Some records have no producer. Batches have one to thirty records, of every codec.
"""

import random
import select
import sys
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, KafkaException, Producer

RETAINED = ("sized", "timed")
COMPACTED = "compacted"
CODECS = ("none", "gzip", "lz4", "zstd")
SECONDS_MAX = 60.0
TRANSACTION_TIMEOUT_MS = 10_000
KEYS = 40
PAUSE_SECONDS = 0.02
FAILED_MAX = 100


@dataclass
class Traffic:
    """A few producers of each kind. Everything that is drawn follows from ``seed``; what the broker does meanwhile does not."""

    address: str
    seed: int
    written: int = 0
    failed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.plain = self._producer({})
        self.idempotent = [self._producer({"enable.idempotence": True}) for _ in range(3)]
        self.transactional = [self._transactional(number) for number in range(3)]
        self.left: list[Producer] = []

    def _producer(self, settings: dict[str, object]) -> Producer:
        usual = {"bootstrap.servers": self.address, "log_level": 2, "linger.ms": 2, "compression.type": self.rng.choice(CODECS)}
        return Producer({**usual, **settings})

    def _transactional(self, number: int) -> Producer:
        producer = self._producer({"transactional.id": f"live-{number}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS})
        producer.init_transactions(SECONDS_MAX)
        return producer

    def step(self) -> None:
        """A few records of somebody."""
        draw = self.rng.random()
        if draw < 0.2:
            self._write(self.plain, self.rng.choice((*RETAINED, COMPACTED)))
        elif draw < 0.6:
            at = self.rng.randrange(len(self.idempotent))
            if self.rng.random() < 0.03:
                self.idempotent[at].flush(SECONDS_MAX)
                self.idempotent[at] = self._producer({"enable.idempotence": True})
            self._write(self.idempotent[at], self.rng.choice((*RETAINED, COMPACTED)))
        else:
            self._transaction(self.rng.randrange(len(self.transactional)))

    def _transaction(self, number: int) -> None:
        producer = self.transactional[number]
        try:
            self._begin_and_end(producer, number)
        except KafkaException as error:
            # The machine was paused for longer than the timeout: the coordinator has aborted it.
            if error.args[0].txn_requires_abort():
                producer.abort_transaction(SECONDS_MAX)
            else:
                self.transactional[number] = self._transactional(number)

    def _begin_and_end(self, producer: Producer, number: int) -> None:
        producer.begin_transaction()
        for topic in self.rng.sample((*RETAINED, COMPACTED), self.rng.randint(1, 3)):
            self._write(producer, topic)
        draw = self.rng.random()
        if draw < 0.7:
            producer.commit_transaction(SECONDS_MAX)
        elif draw < 0.97:
            producer.flush(SECONDS_MAX)  # else what was not sent yet would not be
            producer.abort_transaction(SECONDS_MAX)
        else:
            producer.flush(SECONDS_MAX)
            # Its coordinator ends it, with markers of the next epoch: when the next producer of the name comes, or when its time is over.
            self.left = [*self.left[-2:], producer]
            others_name = number + len(self.transactional) * self.rng.randrange(2)
            self.transactional[number] = self._transactional(others_name)

    def _write(self, producer: Producer, topic: str) -> None:
        for _ in range(self.rng.choice((1, 1, 3, 10, 30))):
            key = f"{self.rng.randrange(KEYS)}".encode() if topic == COMPACTED else None
            value = None if key is not None and self.rng.random() < 0.1 else b"v" * self.rng.choice((20, 100, 400))
            producer.produce(topic, value, key, partition=0, on_delivery=self._delivered)
        producer.poll(0)

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is None:
            self.written += 1
        elif error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT) and len(self.failed) < FAILED_MAX:
            self.failed.append(str(error))

    def end(self) -> None:
        """Sends what waits."""
        for producer in (self.plain, *self.idempotent, *self.transactional):
            producer.flush(SECONDS_MAX)


def main(address: str, seed: int) -> int:
    """Writes until it is asked to end; reports how many records the broker took. Exit code 1 where one could not be sent."""
    traffic = Traffic(address, seed)
    print("writes", flush=True)  # noqa: T201
    try:
        while not select.select([sys.stdin], [], [], PAUSE_SECONDS)[0]:
            traffic.step()
        traffic.end()
    except KafkaException as error:
        traffic.failed.append(str(error))
    print(traffic.written, flush=True)  # noqa: T201
    for each in traffic.failed:
        print(each, file=sys.stderr)  # noqa: T201
    return 1 if traffic.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
