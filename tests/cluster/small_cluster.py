"""A small cluster that elects, replicates and loses records by Kafka's rules, in plain lists. It shares no code with ``fleet``.

A record is the leader epoch that wrote it; a log is the list of its records. The high watermark is the end of the shortest log in sync.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass
class SmallPartition:
    """One partition: the first broker leads at first."""

    brokers: list[int]
    leader: int | None = None
    epoch: int = 0
    logs: dict[int, list[int]] = field(default_factory=dict)
    epoch_starts: dict[int, dict[int, int]] = field(default_factory=dict)
    in_sync: set[int] = field(default_factory=set)
    committed: list[int] = field(default_factory=list)
    checkpointed: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)
    """Replicas whose leader epochs were cut afterwards."""

    def __post_init__(self) -> None:
        self.leader = self.brokers[0]
        self.in_sync = set(self.brokers)
        for node in self.brokers:
            self.logs[node] = []
            self.epoch_starts[node] = {}
            self.checkpointed[node] = 0
        self.epoch_starts[self.leader][0] = 0

    def produce(self, count: int, lagging: set[int]) -> None:
        """Records for the leader, replicated by everybody in sync; who lags is no longer in sync."""
        if self.leader is None:
            return
        self.in_sync -= lagging - {self.leader}
        log = self.logs[self.leader]
        log += [self.epoch] * count
        for node in self.in_sync - {self.leader}:
            self._copy_from_leader(node)
        self.committed = list(log)

    def produce_unacknowledged(self, count: int) -> None:
        """Records that no follower has fetched: the high watermark stays."""
        if self.leader is not None and self.in_sync != {self.leader}:
            self.logs[self.leader] += [self.epoch] * count

    def checkpoint(self, node: int, behind: int) -> None:
        """The high watermark as its broker writes it, some records late."""
        known = min(len(self.committed), len(self.logs[node]))
        self.checkpointed[node] = max(self.checkpointed[node], known - behind)

    def stop(self, node: int) -> None:
        """Another one in sync leads; the last in sync stays in sync, and leads when it is back."""
        if self.in_sync != {node}:
            self.in_sync.discard(node)
        if self.leader == node:
            candidates = sorted(self.in_sync - {node})
            self.leader = candidates[0] if candidates else None
            if self.leader is not None:
                self.epoch += 1
                self.epoch_starts[self.leader][self.epoch] = len(self.logs[self.leader])

    def start(self, node: int) -> None:
        """The last in sync leads again; everybody else follows."""
        if self.leader is None and node in self.in_sync:
            self.leader = node
            self.epoch += 1
            self.epoch_starts[node][self.epoch] = len(self.logs[node])
        self.catch_up(node)

    def catch_up(self, node: int) -> None:
        """In sync with the leader."""
        if self.leader is not None and node != self.leader:
            self._copy_from_leader(node)
            self.in_sync.add(node)

    def _copy_from_leader(self, node: int) -> None:
        """A follower truncates to the leader's log, and knows an epoch when it has a record of it."""
        assert self.leader is not None
        self.logs[node] = list(self.logs[self.leader])
        starts = self.epoch_starts[self.leader]
        self.epoch_starts[node] = {epoch: start for epoch, start in starts.items() if start < len(self.logs[node])}

    def has_all(self, node: int, acknowledged: int) -> bool:
        """Whether a leader on this broker would lose nothing, and may lead."""
        return node not in self.cut and self.logs[node][:acknowledged] == self.committed[:acknowledged]


@dataclass
class SmallCluster:
    """Brokers and partitions after a random history."""

    running: set[int]
    partitions: list[SmallPartition]


def random_cluster(random: Random, *, running_are_in_sync: bool) -> SmallCluster:
    """A history of writes, stops and lags.

    Args:
        random: source of all choices.
        running_are_in_sync: no replica of a broker that runs at the end lags.
    """
    brokers = list(range(1, random.randint(2, 5) + 1))
    partitions = []
    for _ in range(random.randint(1, 4)):
        replicas = random.sample(brokers, random.randint(1, min(3, len(brokers))))
        partitions.append(SmallPartition(replicas))
    running = set(brokers)
    for _ in range(random.randint(1, 8)):
        event = random.random()
        if event < 0.3 and running:
            stopped = random.choice(sorted(running))
            running.discard(stopped)
            for each in partitions:
                if stopped in each.brokers:
                    each.stop(stopped)
        elif event < 0.4 and len(running) < len(brokers):
            started = random.choice(sorted(set(brokers) - running))
            running.add(started)
            for each in partitions:
                if started in each.brokers:
                    each.start(started)
        elif event < 0.5:
            for each in partitions:
                each.produce_unacknowledged(random.randint(1, 3))
        else:
            for each in partitions:
                lagging = {node for node in each.brokers if random.random() < 0.2}
                each.produce(random.randint(0, 5), lagging)
        for each in partitions:
            for node in running.intersection(each.brokers):
                each.checkpoint(node, random.randint(0, 3))
    if running_are_in_sync:
        start_last_in_sync(partitions, running)
    for each in partitions:
        for node in running.intersection(each.brokers):
            if running_are_in_sync:
                each.catch_up(node)
        for node in each.brokers:
            if each.logs[node] and random.random() < 0.1:
                each.cut.add(node)
            if node not in running and random.random() < 0.1:
                del each.logs[node][random.randint(0, len(each.logs[node])) :]
    return SmallCluster(running, partitions)


def start_last_in_sync(partitions: list[SmallPartition], running: set[int]) -> None:
    """Starts a broker in sync for each partition that has running replicas and no leader, without which they could not be in sync."""
    while True:
        offline = [each for each in partitions if each.leader is None and running.intersection(each.brokers)]
        if not offline:
            return
        started = min(offline[0].in_sync)
        running.add(started)
        for each in partitions:
            if started in each.brokers:
                each.start(started)
