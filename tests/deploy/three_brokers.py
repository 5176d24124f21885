"""Three real brokers with one ZooKeeper on loopback. Each has a directory, from which any process can start and stop it.

As a command: what a play of Ansible calls: ``three_brokers.py DIR start|stop|version|controller|topics|api-versions [ARGUMENT ...]``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_node import KafkaNode

NUMBERS = (1, 2, 3)
RELEASE_FILE = "release.json"
REMOTE = " remote"
TIERING = "remote.log.storage.system.enable=true"
JAR = re.compile(r"/kafka_2\.\d+-(\d+\.\d+\.\d+)\.jar")
PROTOCOL = re.compile(r"^inter\.broker\.protocol\.version=(.+)$", re.MULTILINE)
HEAP_MIB = 384
REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "rlmm.config.remote.log.metadata.topic.replication.factor": 3,
    # So that 2.7 soon deletes snapshots.
    "log.flush.offset.checkpoint.interval.ms": 2000,
}
TOOLS = {
    ("topics", "2.7.2"): "kafka.admin.TopicCommand",
    ("topics", "3.9.2"): "org.apache.kafka.tools.TopicCommand",
    ("api-versions", "2.7.2"): "kafka.admin.BrokerApiVersionsCommand",
    ("api-versions", "3.9.2"): "kafka.admin.BrokerApiVersionsCommand",
}
ZOOKEEPER_SHELL = "org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka"


@dataclass(frozen=True)
class Release:
    """The release that a broker is started as.

    Attributes:
        version: of the software.
        protocol: ``inter.broker.protocol.version``.
        tiering: remote storage is on.
    """

    version: str
    protocol: str
    tiering: bool = False

    def __str__(self) -> str:
        """The line that ``version`` prints."""
        return f"{self.version} protocol {self.protocol}{REMOTE if self.tiering else ''}"


def broker_dirs(root: Path, release: Release) -> list[Path]:
    """Makes the directories of three brokers, which share ZooKeeper and remote storage."""
    for name in ("zookeeper", "remote"):
        (root / name).mkdir()
    directories = [root / f"kafka-{number}" for number in NUMBERS]
    for directory in directories:
        directory.mkdir()
        for name in ("zookeeper", "remote"):
            (directory / name).symlink_to(root / name)
        (directory / RELEASE_FILE).write_text(json.dumps(asdict(release)))
    return directories


def broker_at(directory: Path) -> KafkaNode:
    """The broker of a directory, in the release that is installed there; it may run."""
    release = Release(**json.loads((directory / RELEASE_FILE).read_text()))
    number = int(directory.name.rpartition("-")[2])
    settings = {**REPLICATED, "broker.id": number, "inter.broker.protocol.version": release.protocol}
    return KafkaNode(
        directory, version=release.version, tiering=release.tiering, settings=settings, heap_mib=HEAP_MIB, outlives=True
    )


def running_release(node: KafkaNode) -> str:
    """Version, protocol and remote storage of the process that runs, not of what is installed."""
    jar = JAR.search(Path(f"/proc/{node.pid}/cmdline").read_text())
    properties = (node.root / "server.properties").read_text()
    protocol = PROTOCOL.search(properties)
    assert jar is not None, "no broker of Kafka"
    assert protocol is not None, "its protocol is not configured"
    return f"{jar[1]} protocol {protocol[1]}{REMOTE if TIERING in properties else ''}"


def main(arguments: Sequence[str]) -> int:
    """The command."""
    node, verb = broker_at(Path(arguments[0])), arguments[1]
    if verb == "start":
        node.start()
    elif verb == "stop":
        node.stop()
    elif verb == "version":
        print(running_release(node))  # noqa: T201
    elif verb == "controller":
        assert node.zookeeper is not None
        print(node.tool(ZOOKEEPER_SHELL, "-server", f"127.0.0.1:{node.zookeeper.port}", "get", "/controller"), end="")  # noqa: T201
    else:
        print(node.tool(TOOLS[verb, node.release.version], *arguments[2:]), end="")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
