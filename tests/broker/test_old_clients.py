"""Clients of Kafka 1.0 to 2.4 that begin again at sequence 0: a replay of their logs gives what Kafka's own classes give."""

import random
from pathlib import Path

import pytest
from budgets import each_seed, scaled
from oracle import Oracle
from reference_producer_state import ProducerState
from replays import NOW, OLD, PROVEN, WEAK, YOUNG, Hand, entries_in, windowed
from simulated_broker import Client, loaded

from formats.partition.producer_snapshot import ProducerEntry


def played(seed: int, directory: Path) -> int:
    """A log of some segments whose start moved into the first one; producers below it are forgotten, and begin again at 0."""
    rng, log, live = random.Random(seed), Hand(), ProducerState()
    clients = [Client(number, is_transactional=number % 2 == 0, epoch=rng.choice((0, 0, 1))) for number in range(4)]
    segments, moves_at = rng.randrange(3, 7), rng.randrange(1, 3)
    log_start = 0
    for index in range(segments):
        if index:
            log.roll()
        if index == moves_at:
            log_start = rng.randrange(1, log.end + 1)
            for client in clients:  # as ``ProducerStateManager.truncateHead`` of 1.0 to 2.3, and the client's answer to that
                entry = live.entries.get(client.producer_id)
                if entry is not None and entry.last_offset < log_start:
                    del live.entries[client.producer_id]
                    live.ongoing = {at: each for at, each in live.ongoing.items() if each != client.producer_id}
                    client.sequence = 0
        for _ in range(rng.randrange(1, 5)):
            client = rng.choice(clients)
            timestamp = OLD if index < segments - 2 else YOUNG
            is_marker = client.is_transactional and client.is_open and rng.random() < 0.5
            client.is_open = client.is_transactional and not is_marker
            batch = client.marker(log.end, timestamp, 1, commit=True) if is_marker else client.data(log.end, 1, timestamp)
            list(live.append([log.add(batch).meaning]))  # type: ignore[list-item]
    log.write(directory, {log.end: live.entries.values()})
    (directory.parent / "log-start-offset-checkpoint").write_bytes(b"0\n1\nt 0 %d\n" % log_start)
    return log_start


@pytest.mark.kafka
def test_what_is_proven_is_what_kafka_gives(oracle: Oracle, tmp_path: Path) -> None:
    reached = {"proven": 0, "from the window": 0}

    @each_seed(scaled(60))
    def holds(seed: int) -> None:
        directory = tmp_path / str(seed) / "t-0"
        directory.parent.mkdir()
        log_start = played(seed, directory)
        rng, bases = random.Random(~seed), sorted(int(path.stem) for path in directory.glob("*.log"))
        result = windowed(directory, rng.choice(bases[1:]))
        kafka = oracle.replay(directory, "recover").states
        for state in result.states:
            if state.offset <= log_start or state.judgement.snapshot_class in WEAK:
                continue
            reached["proven"] += 1
            reached["from the window"] += state.judgement.snapshot_class in PROVEN
            true = [ProducerEntry(*entry) for entry in kafka[state.offset].values()]
            assert loaded(entries_in(state.entries).values(), NOW) == loaded(true, NOW)

    holds()
    assert reached["proven"]
