"""One real broker on loopback, of any release that is known: with its own ZooKeeper, or a node of KRaft that is its own controller."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from broker_settings import (
    SecureListeners,
    Settings,
    common_settings,
    first_kraft_settings,
    further_kraft_settings,
    tiering_settings,
    zookeeper_settings,
)
from free_ports import kept_ports
from java_process import JAVA, JavaProcess, class_archive
from kafka_classpath import KAFKA_VERSION, kafka_classpath, tiering_classpath
from kafka_release import RELEASES
from moved_in_time import check_young
from zookeeper_node import ZooKeeperNode

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, ClusterMetadata, PartitionMetadata

START_SECONDS = 120.0
TOOL_SECONDS = 120.0
HEAP_MIB = 512
RECORDS_IN_TRANSACTION = 20
BROKER_MAIN = "kafka.Kafka"
CLUSTER_ID = "c25hcHJlYnVpbGR0ZXN0cw"


class KafkaNode:
    """A broker that can be started and stopped again and again over one directory. Kills only the processes that it started.

    Another release over the same directory is an upgrade: what it finds there is as the one before left it.
    """

    def __init__(
        self,
        root: Path,
        *,
        version: str = KAFKA_VERSION,
        tiering: bool = True,
        settings: Mapping[str, object] | None = None,
        secure: Mapping[str, object] | None = None,
        controller: KafkaNode | None = None,
        node_id: int = 2,
        heap_mib: int = HEAP_MIB,
        java_options: Sequence[str] = (),
        outlives: bool = False,
    ) -> None:
        """``secure``: settings of one more listener, of SASL over TLS, on ``secure_port``. Names are without the prefix of the listener.

        With them ``tls_port`` has a listener of TLS without SASL, which requires a certificate of the client.

        ``controller``: the first node of a cluster in KRaft, of which this is then another, ``node_id``. They share the remote storage of
        the first.
        ``outlives``: it continues when this run of Python ends, however that ends.
        """
        self.root = root
        self.release = RELEASES[version]
        self.log_dir = root / "kafka-logs"
        self.remote_dir = root / "remote" if controller is None else controller.remote_dir
        self.log_file = root / "broker.log"
        self._settings = dict(settings or {})
        self._secure = secure
        self._controller = controller
        self._node_id = node_id
        self._heap_mib = heap_mib
        self._java_options = java_options
        self._tiering = tiering and self.release.has_tiering
        self._classpath = tiering_classpath(version) if self._tiering else kafka_classpath(version)
        root.mkdir(parents=True, exist_ok=True)
        self.remote_dir.mkdir(exist_ok=True)
        self._process = JavaProcess(root, self.log_file, root / "broker.pid", outlives=outlives)
        ports = kept_ports(root / "ports", 4, in_use=self.is_running)
        self.port, self._controller_port, self.secure_port, self.tls_port = ports
        self.zookeeper = None
        if self.release.zookeeper is not None:
            self.zookeeper = ZooKeeperNode(root / "zookeeper", self._classpath, outlives=outlives)
        if self.zookeeper is None and not (self.log_dir / "meta.properties").exists():
            options = [*self._quorum_options(), "-t", CLUSTER_ID, "-c", str(self._write_properties())]
            # That of the release itself: it writes the levels of features that the release begins a cluster with.
            self._run(version, "kafka.tools.StorageTool", "format", *options)

    @property
    def address(self) -> str:
        """Where clients reach it."""
        return f"127.0.0.1:{self.port}"

    @property
    def controller_address(self) -> str:
        """Where brokers reach the controller of a cluster in KRaft."""
        return f"127.0.0.1:{self._controller_port}"

    def _write_properties(self) -> Path:
        file = self.root / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in self._all_settings().items()))
        return file

    def _all_settings(self) -> Settings:
        tiering = tiering_settings(self.remote_dir) if self._tiering else {}
        return {**self._cluster_settings(), **common_settings(self.log_dir), **tiering, **self._settings}

    def _cluster_settings(self) -> Settings:
        if self.zookeeper is not None:
            assert self._secure is None, "only a node of KRaft has the further listener"
            return zookeeper_settings(self.address, f"127.0.0.1:{self.zookeeper.port}")
        if self._controller is not None:
            return further_kraft_settings(self._node_id, self.address, self._controller.controller_address)
        secure = None
        if self._secure is not None:
            secure = SecureListeners(f"127.0.0.1:{self.secure_port}", f"127.0.0.1:{self.tls_port}", self._secure)
        return first_kraft_settings(self.address, self.controller_address, secure)

    def _quorum_options(self) -> list[str]:
        """Options of ``StorageTool format`` that name the voters, where the settings do not."""
        return ["--standalone"] if self._controller is None else []

    # ---- life ----

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        pid = self._process.pid
        assert pid is not None, "the broker is not running"
        return pid

    @property
    def is_running(self) -> bool:
        """The broker is; ZooKeeper may run without it."""
        return self._process.pid is not None

    def start(self) -> int:
        """Starts the broker and waits until it serves. Returns the mark of this start in the log: see `log_since`."""
        if self.zookeeper is not None and self.zookeeper.process.pid is None:
            self.zookeeper.start()
        properties = str(self._write_properties())
        mark = self._process.start(self._classpath, BROKER_MAIN, properties, heap_mib=self._heap_mib, options=self._java_options)
        self.wait_for_log(self.release.started, mark, START_SECONDS)
        if self._tiering:
            # A broker that is stopped while this part of it still looks for the broker does not end: Kafka waits for itself.
            self.wait_for_log("Initialized (topic-based RLMM )?resources successfully", mark, START_SECONDS)
        return mark

    def stop(self) -> None:
        """A clean stop of the broker (SIGTERM): returns when it has ended, and insists that it ended cleanly. ZooKeeper continues."""
        self._process.stop()
        assert (self.log_dir / ".kafka_cleanshutdown").is_file(), f"not a clean shutdown: {self._process.tail()}"

    def stop_all(self) -> None:
        """Ends the broker as `stop` does, and ZooKeeper, as far as they run."""
        if self.is_running:
            self.stop()
        if self.zookeeper is not None and self.zookeeper.process.pid is not None:
            self.zookeeper.process.stop()

    def kill(self) -> None:
        """SIGKILL to our own broker, if it runs."""
        self._process.kill()

    def kill_all(self) -> None:
        """SIGKILL to our own broker and our own ZooKeeper, as far as they run."""
        self.kill()
        if self.zookeeper is not None:
            self.zookeeper.process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill_all()

    # ---- what it says ----

    def log_since(self, mark: int) -> str:
        """The broker's log after a mark."""
        return self._process.log_since(mark)

    def wait_for_log(self, pattern: str, mark: int, seconds: float, *, times: int = 1) -> None:
        """Waits until the log after ``mark`` matches ``times`` times, while the broker lives."""
        self._process.wait_for_log(pattern, mark, seconds, times=times)

    # ---- what is done with it ----

    def tool(self, main: str, *arguments: str) -> str:
        """Runs one of Kafka's tools to its end. Returns its standard output."""
        return self._run(self.release.tools, main, *arguments)

    @staticmethod
    def _run(version: str, main: str, *arguments: str) -> str:
        command = [*JAVA, "-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        classpath = kafka_classpath(version)
        if (archive := class_archive(classpath, BROKER_MAIN)).exists():
            command.append(f"-XX:SharedArchiveFile={archive}")
        command += ["-cp", classpath, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        assert done.returncode == 0, f"{main} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def _admin(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.address, "log_level": 4})

    def create_topic(self, name: str, settings: Mapping[str, object], *, replicas: int = 1) -> None:
        """A topic of one partition."""
        from confluent_kafka.admin import NewTopic

        # Before KRaft a broker serves earlier than it becomes the controller, and knows of itself; a client that asks then gets no answer.
        deadline = time.monotonic() + START_SECONDS
        while (known := self._metadata()).controller_id not in known.brokers:
            assert time.monotonic() < deadline, "no controller"
            time.sleep(0.1)
        topic = NewTopic(
            name, num_partitions=1, replication_factor=replicas, config={key: str(value) for key, value in settings.items()}
        )
        admin = self._admin()
        admin.create_topics([topic], operation_timeout=TOOL_SECONDS)[name].result(TOOL_SECONDS)

    def set_topic(self, name: str, settings: Mapping[str, object]) -> None:
        """Changes settings of a topic, and leaves its others."""
        self._set("TOPIC", name, settings)

    def set_broker(self, node_id: int, settings: Mapping[str, object]) -> None:
        """Changes settings of a broker that may be changed while it runs."""
        self._set("BROKER", str(node_id), settings)

    def _set(self, kind: str, name: str, settings: Mapping[str, object]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [ConfigEntry(key, str(value), incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
        resource = ConfigResource(ResourceType[kind], name, incremental_configs=entries)
        admin = self._admin()
        admin.incremental_alter_configs([resource])[resource].result(TOOL_SECONDS)

    def reassign(self, topic: str, replicas: list[int], *, log_dir: Path | None = None) -> None:
        """Orders that the one partition of a topic be moved, as an operator does."""
        plan = self.root / "reassignment.json"
        moved = {"topic": topic, "partition": 0, "replicas": replicas, "log_dirs": [str(log_dir or "any")] * len(replicas)}
        plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
        arguments = ("--bootstrap-server", self.address, "--execute", "--reassignment-json-file", str(plan))
        self.tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", *arguments)

    def elect(self, topic: str) -> None:
        """Orders that the first of the replicas lead, as an operator does."""
        arguments = ("--bootstrap-server", self.address, "--election-type", "preferred", "--topic", topic, "--partition", "0")
        self.tool("org.apache.kafka.tools.LeaderElectionCommand", *arguments)

    def partition(self, topic: str) -> PartitionMetadata:
        """Leader, replicas and ISR of the one partition of a topic, as the cluster shows."""
        return self.topic_partitions(topic)[0]

    def topic_partitions(self, topic: str) -> dict[int, PartitionMetadata]:
        """The partitions of a topic, as far as the broker knows of them by now."""
        return dict(self._metadata(topic).topics[topic].partitions)

    def _metadata(self, *topics: str) -> ClusterMetadata:
        """The broker's metadata of the cluster: of all topics, or of one. It does not answer in full before it knows of itself."""
        from confluent_kafka import KafkaError, KafkaException

        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                return self._admin().list_topics(*topics, timeout=TOOL_SECONDS)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._PARTIAL or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def wait_for_replicas(self, topic: str, *, leader: int, in_sync: set[int]) -> None:
        """Waits until the one partition of a topic is led and kept in sync by these nodes."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            partition = self.partition(topic)
            if (partition.leader, set(partition.isrs)) == (leader, in_sync):
                return
            assert time.monotonic() < deadline, f"led by {partition.leader}, in sync {partition.isrs}"
            time.sleep(0.1)

    def end_offset(self, topic: str, *, stable: bool = False) -> int:
        """Where a consumer's reading ends: at the high watermark, or at the last stable offset."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        admin, partition = self._admin(), TopicPartition(topic, 0)
        level = IsolationLevel.READ_COMMITTED if stable else IsolationLevel.READ_UNCOMMITTED
        asked = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level, request_timeout=TOOL_SECONDS)
        return int(asked[partition].result(TOOL_SECONDS).offset)

    def delete_records(self, topic: str, offset: int) -> None:
        """Moves the log start of the one partition of a topic."""
        from confluent_kafka import TopicPartition

        partition, admin = TopicPartition(topic, 0, offset), self._admin()  # whose answers end with it
        admin.delete_records([partition])[partition].result(TOOL_SECONDS)

    def produce(self, topic: str, records: int, *, transactional_id: str | None = None, timestamp_ms: int = 0) -> None:
        """Writes small batches by an idempotent producer, or in transactions of a few of them; ``timestamp_ms`` is 0 for now."""
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.address, "log_level": 4, "enable.idempotence": True, "batch.num.messages": 5}
        is_transactional = transactional_id is not None
        producer = Producer({**settings, "transactional.id": transactional_id} if is_transactional else settings)
        if is_transactional:
            producer.init_transactions(TOOL_SECONDS)
        for first in range(0, records, RECORDS_IN_TRANSACTION):
            if is_transactional:
                producer.begin_transaction()
            for _ in range(min(RECORDS_IN_TRANSACTION, records - first)):
                producer.produce(topic, b"v" * 20, partition=0, timestamp=timestamp_ms)
            if is_transactional:
                producer.commit_transaction(TOOL_SECONDS)
        assert producer.flush(TOOL_SECONDS) == 0, "records were not sent"

    def plant(self, partition: str, source: Path, log_end_offset: int) -> Path:
        """Puts the log of an older broker in the place of an empty partition of this stopped one, or where none is yet.

        Returns:
            The directory of the partition.

        Raises:
            ValueError: the log is old, so that the broker would forget its producers.
        """
        assert not self.is_running, "a running broker would not see it"
        check_young(source)
        target = self.log_dir / partition
        target.mkdir(parents=True, exist_ok=True)
        for old in target.iterdir():
            if old.name != "partition.metadata":
                old.unlink()
        for file in source.iterdir():
            if file.name != "partition.metadata":
                (target / file.name).write_bytes(file.read_bytes())
        topic, _, number = partition.rpartition("-")
        for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            self._set_checkpoint(self.log_dir / checkpoint, f"{topic} {number}", log_end_offset)
        (self.log_dir / ".kafka_cleanshutdown").touch()  # a broker that has never run has not stopped either
        return target

    def set_log_start(self, topic: str, offset: int) -> None:
        """Sets the log start offset of the one partition of a topic; the broker is stopped."""
        self._set_checkpoint(self.log_dir / "log-start-offset-checkpoint", f"{topic} 0", offset)

    @staticmethod
    def _set_checkpoint(file: Path, partition: str, offset: int) -> None:
        version, _, *lines = (file.read_text() if file.exists() else "").splitlines() or ("0", "0")  # 2.7 makes it empty
        kept = [line for line in lines if not line.startswith(f"{partition} ")]
        kept.append(f"{partition} {offset}")
        file.write_text("\n".join([version, str(len(kept)), *kept]) + "\n")

    def remote_files(self, partition: str) -> dict[str, Path]:
        """The files in the remote storage of a partition: ``00000000000000000000.log``, ... -> path."""
        found: dict[str, Path] = {}
        for path in self.remote_dir.glob(f"kafka-tiered-storage/{partition}-*/*"):
            base, _, suffix = path.name[:20], path.name[20], path.name.rpartition(".")[2]
            assert f"{base}.{suffix}" not in found, f"{path} was uploaded twice"
            found[f"{base}.{suffix}"] = path
        return found

    def bases(self, topic: str) -> list[int]:
        """Base offsets of the segments of partition 0 on disk, the active one last."""
        return sorted(int(path.stem) for path in (self.log_dir / f"{topic}-0").glob("*.log"))

    def remote_bases(self, topic: str) -> list[int]:
        """Base offsets of the segments of partition 0 in remote storage; fails if a segment is there twice."""
        return sorted(int(name[:20]) for name in self.remote_files(f"{topic}-0") if name.endswith(".log"))

    def wait_until_copied(self, partition: str, above: int = 0) -> None:
        """Until the active segment is the only local one and begins above an offset; the topic has ``local.retention.bytes`` 1.

        A broker deletes a segment by local retention only after it has written the record that the copy is finished.
        """
        deadline = time.monotonic() + START_SECONDS
        while True:
            bases = sorted(int(path.stem) for path in (self.log_dir / partition).glob("*.log"))
            if len(bases) == 1 and bases[0] > above:
                return
            assert time.monotonic() < deadline, (partition, bases)
            time.sleep(0.1)
