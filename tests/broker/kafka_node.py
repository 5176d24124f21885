"""One real broker: a single KRaft node on loopback with tiered storage in a local directory."""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from kafka_classpath import KAFKA_VERSION, kafka_classpath

START_SECONDS = 120.0
STOP_SECONDS = 60.0
TOOL_SECONDS = 120.0
COPY_INTERVAL_MS = 500
CLUSTER_ID = "c25hcHJlYnVpbGR0ZXN0cw"
LOCAL_TIERED_STORAGE = "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. They lie below the range from which the kernel gives outgoing connections theirs, so they
    stay free between two starts of the same broker."""
    found: list[int] = []
    candidates = random.Random().sample(range(20_000, 32_000), 200)
    for port in candidates:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError("no free ports")


class KafkaNode:
    """A node that can be started and stopped again and again over one directory. Kills only the process that it started."""

    def __init__(
        self, root: Path, *, settings: Mapping[str, object] | None = None, secure: Mapping[str, object] | None = None
    ) -> None:
        """``secure``: settings of one more listener, of SASL over TLS, on ``secure_port``; their names begin behind its name."""
        self.root = root
        self.log_dir = root / "kafka-logs"
        self.remote_dir = root / "remote"
        self.log_file = root / "broker.log"
        self._settings = dict(settings or {})
        self._secure = secure
        self._classpath = kafka_classpath(KAFKA_VERSION)
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self.port, self._controller_port, self.secure_port = free_ports(3)
        root.mkdir(parents=True, exist_ok=True)
        self.remote_dir.mkdir(exist_ok=True)
        self._properties = root / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._all_settings().items()))
        self.log_file.touch()
        self.tool("kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(self._properties))

    def _all_settings(self) -> dict[str, object]:
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._controller_port}"
        secure: dict[str, object] = {}
        if self._secure is not None:
            listeners += f",SECURE://127.0.0.1:{self.secure_port}"
            secure = {f"listener.name.secure.{name}": value for name, value in self._secure.items()}
            secure["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller_port}",
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            # Fixtures grow old: nothing may expire or be deleted because of the day on which a test runs.
            "producer.id.expiration.ms": 2**31 - 1,
            "log.retention.ms": -1,
            "remote.log.storage.system.enable": "true",
            "remote.log.storage.manager.class.name": LOCAL_TIERED_STORAGE,
            "rsm.config.dir": self.remote_dir,
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
            "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
            "remote.log.manager.task.interval.ms": COPY_INTERVAL_MS,
            **secure,
            **self._settings,
        }

    # ---- life ----

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self) -> int:
        """Starts the broker and waits until it serves. Returns the mark of this start in the log: see `log_since`."""
        assert self._process is None, "the broker is running"
        mark = self.log_file.stat().st_size
        self._output = self.log_file.open("ab")
        properties = ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS", "showShortLogName=true")
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += [f"-Dorg.slf4j.simpleLogger.{each}" for each in properties]
        command += ["-cp", self._classpath, "kafka.Kafka", str(self._properties)]
        self._process = subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=self._output, stderr=self._output)
        self.wait_for_log(r"\] Kafka Server started", mark, START_SECONDS)
        # A broker that is stopped while this part of it still looks for the broker does not end: Kafka waits for itself.
        self.wait_for_log("Initialized topic-based RLMM resources successfully", mark, START_SECONDS)
        return mark

    def stop(self) -> None:
        """A clean stop (SIGTERM): returns when the process has ended, and insists that it ended cleanly."""
        assert self._process is not None, "the broker is not running"
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(STOP_SECONDS)
        finally:
            self.kill()
        # Java ends with 128 + SIGTERM after its shutdown hooks.
        assert status in (0, 143), f"the broker ended with {status}: {self._tail()}"
        assert (self.log_dir / ".kafka_cleanshutdown").is_file(), f"not a clean shutdown: {self._tail()}"

    def kill(self) -> None:
        """SIGKILL to our own process, if it runs."""
        if self._process is not None:
            if self._process.poll() is None:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._output is not None:
            self._output.close()
            self._output = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    # ---- what it says ----

    def log_since(self, mark: int) -> str:
        with self.log_file.open("rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")

    def wait_for_log(self, pattern: str, mark: int, seconds: float, *, times: int = 1) -> None:
        """Waits until the log after ``mark`` matches ``times`` times, while the broker lives."""
        deadline = time.monotonic() + seconds
        while len(re.findall(pattern, self.log_since(mark))) < times:
            assert self._process is not None
            assert self._process.poll() is None, f"the broker ended with {self._process.returncode}: {self._tail()}"
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {times} x {pattern!r} in: {self._tail()}"
            time.sleep(0.05)

    def _tail(self) -> str:
        return self.log_since(max(0, self.log_file.stat().st_size - 6000))

    # ---- what is done with it ----

    def tool(self, main: str, *arguments: str) -> str:
        """Runs one of Kafka's tools to its end. Returns its standard output."""
        command = [
            "java",
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        ]
        command += ["-cp", self._classpath, main, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        assert done.returncode == 0, f"{main} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def create_topic(self, name: str, settings: Mapping[str, object]) -> None:
        """A topic of one partition."""
        arguments = ["--bootstrap-server", f"127.0.0.1:{self.port}", "--create", "--topic", name, "--partitions", "1"]
        arguments += ["--replication-factor", "1"]
        for setting, value in settings.items():
            arguments += ["--config", f"{setting}={value}"]
        self.tool("org.apache.kafka.tools.TopicCommand", *arguments)

    def produce(self, topic: str, records: int, *, transactional_id: str | None = None) -> None:
        """Writes small batches by an idempotent producer, or in transactions of a few of them."""
        arguments = ["--topic", topic, "--num-records", str(records), "--record-size", "20", "--throughput", "400"]
        arguments += ["--bootstrap-server", f"127.0.0.1:{self.port}", "--command-property", "batch.size=200"]
        if transactional_id is not None:
            arguments += ["--transactional-id", transactional_id, "--transaction-duration-ms", "30"]
        self.tool("org.apache.kafka.tools.ProducerPerformance", *arguments)

    def plant(self, partition: str, source: Path, log_end_offset: int) -> Path:
        """Puts the log of an older broker in the place of an empty partition of this stopped one. Returns the directory."""
        assert self._process is None, "a running broker would not see it"
        target = self.log_dir / partition
        topic_identity = (target / "partition.metadata").read_bytes()
        for old in target.iterdir():
            old.unlink()
        (target / "partition.metadata").write_bytes(topic_identity)
        for file in source.iterdir():
            if file.name != "partition.metadata":
                (target / file.name).write_bytes(file.read_bytes())
        topic, _, number = partition.rpartition("-")
        for checkpoint in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            self._set_checkpoint(self.log_dir / checkpoint, f"{topic} {number}", log_end_offset)
        return target

    @staticmethod
    def _set_checkpoint(file: Path, partition: str, offset: int) -> None:
        version, _, *lines = file.read_text().splitlines()
        kept = [line for line in lines if not line.startswith(f"{partition} ")]
        kept.append(f"{partition} {offset}")
        file.write_text("\n".join([version, str(len(kept)), *kept]) + "\n")

    def remote_files(self, partition: str) -> dict[str, Path]:
        """What lies in the remote storage of a partition: ``00000000000000000000.log``, ... -> path."""
        found: dict[str, Path] = {}
        for path in self.remote_dir.glob(f"kafka-tiered-storage/{partition}-*/*"):
            base, _, suffix = path.name[:20], path.name[20], path.name.rpartition(".")[2]
            assert f"{base}.{suffix}" not in found, f"{path} was uploaded twice"
            found[f"{base}.{suffix}"] = path
        return found
