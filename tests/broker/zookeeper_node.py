"""One ZooKeeper server on loopback, of the version that a Kafka release brings."""

import socket
import time
from pathlib import Path

from free_ports import kept_ports
from java_process import JavaProcess

START_SECONDS = 120.0
HEAP_MIB = 128


class ZooKeeperNode:
    """A server that can be started and stopped again and again over one directory."""

    def __init__(self, root: Path, classpath: str, *, outlives: bool) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self.process = JavaProcess(root, root / "zookeeper.log", root / "zookeeper.pid", outlives=outlives)
        (self.port,) = kept_ports(root / "ports", 1, in_use=self.process.pid is not None)
        self._classpath = classpath
        self._settings = {
            "dataDir": root / "data",
            "clientPort": self.port,
            "clientPortAddress": "127.0.0.1",
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        self._properties = root / "zookeeper.properties"

    def start(self) -> None:
        """Starts the server and waits until it takes connections."""
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings.items()))
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        self.process.start(self._classpath, main, str(self._properties), heap_mib=HEAP_MIB)
        deadline = time.monotonic() + START_SECONDS
        while not self._takes_connections():
            assert self.process.pid is not None, f"ZooKeeper has ended: {self.process.tail()}"
            assert time.monotonic() < deadline, f"ZooKeeper takes no connections: {self.process.tail()}"
            time.sleep(0.05)

    def _takes_connections(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True
