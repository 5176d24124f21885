"""A server of Spark Connect on this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

__all__ = ["connect_server"]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SECONDS_MAX = 180


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextmanager
def connect_server(
    directory: Path, master: str = "local[2]", conf: Mapping[str, str] = {}, paths: Sequence[Path] = ()
) -> Iterator[str]:
    """The address of a server, which ends with the block.

    Args:
        directory: for its log and everything that it writes.
        master: where its tasks run.
        conf: settings of Spark.
        paths: that its Python workers import from. Without the one of this checkout they have only the code that the client sends.
    """
    port = _free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        **conf,
    }
    line = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", master, "--class", SERVER]
    for key, value in settings.items():
        line += ["--conf", f"{key}={value}"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_", "PYTHONPATH"))}
    variables |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONNECT_MODE": "0"}
    variables["PYTHONPATH"] = ":".join(map(str, paths))
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / "server.log"
    with log.open("wb") as output:
        # An empty jar: spark-submit wants one, and the class is Spark's own.
        process = subprocess.Popen(
            [*line, "spark-internal"], cwd=directory, env=variables, stdout=output, stderr=output, start_new_session=True
        )
    try:
        _wait_for(port, process, log)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # also its Python workers: it began a group of its own
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended: {log.read_text()[-2000:]}"
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"the server does not answer: {log.read_text()[-2000:]}")
