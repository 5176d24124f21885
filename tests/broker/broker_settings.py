"""The settings of brokers that are started here: on loopback alone, nothing replicated, nothing that goes by the age of data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

Settings = dict[str, object]


@dataclass(frozen=True)
class SecureListeners:
    """One listener of SASL over TLS, and one of TLS alone, which requires a certificate of the client.

    Attributes:
        sasl_address: of the first one.
        tls_address: of the second one.
        settings: of the first one, without the prefix of the listener; the second one has those of TLS.
    """

    sasl_address: str
    tls_address: str
    settings: Mapping[str, object]


COPY_INTERVAL_MS = 500
HEARTBEAT_INTERVAL_MS = 200
"""A broker that starts is let in by an answer to a heartbeat, of which Kafka sends one in two seconds."""
LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def common_settings(log_dir: Path) -> Settings:
    """Settings of any broker."""
    return {
        "log.dirs": log_dir,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        # Fixtures grow old: nothing may expire or be deleted because of the day on which a test runs.
        "producer.id.expiration.ms": 2**31 - 1,
        "log.retention.ms": -1,
    }


def first_kraft_settings(address: str, controller: str, secure: SecureListeners | None) -> Settings:
    """Settings of a node that is broker and controller, with two more listeners if ``secure`` has any."""
    listeners = f"PLAINTEXT://{address},CONTROLLER://{controller}"
    further: Settings = {}
    if secure is not None:
        listeners += f",SECURE://{secure.sasl_address},TLS://{secure.tls_address}"
        further["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL,TLS:SSL"
        further |= {f"listener.name.secure.{name}": value for name, value in secure.settings.items()}
        of_tls = {name: value for name, value in secure.settings.items() if name.startswith("ssl.")}
        further |= {f"listener.name.tls.{name}": value for name, value in of_tls.items()}
        further["listener.name.tls.ssl.client.auth"] = "required"
    return {
        **_kraft_settings(controller),
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": listeners,
        "advertised.listeners": listeners,
        **further,
    }


def further_kraft_settings(node_id: int, address: str, controller: str) -> Settings:
    """Settings of a node that is broker alone."""
    return {**_kraft_settings(controller), "process.roles": "broker", "node.id": node_id, "listeners": f"PLAINTEXT://{address}"}


def _kraft_settings(controller: str) -> Settings:
    return {
        "controller.quorum.bootstrap.servers": controller,
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "broker.heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    }


def zookeeper_settings(address: str, zookeeper: str) -> Settings:
    """Settings of the one broker next to a ZooKeeper."""
    return {"broker.id": 1, "zookeeper.connect": zookeeper, "listeners": f"PLAINTEXT://{address}"}


def tiering_settings(remote_dir: Path) -> Settings:
    """Remote storage in a directory, its metadata in one partition."""
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
        "rsm.config.dir": remote_dir,
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
        "remote.log.manager.task.interval.ms": COPY_INTERVAL_MS,
    }
