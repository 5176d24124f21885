"""A real server of Spark Connect on loopback, from the jars of the pyspark that is installed, and clients of it."""

import contextlib
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark
from command import Run, run_process
from quick_java import JAVA_OPTIONS
from waiting import SECONDS_MAX, wait_until

__all__ = ["ConnectServer", "missing", "running"]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
STARTED = re.compile(r"Spark Connect server started at: 127\.0\.0\.1:(\d+)")
SETTINGS = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}
STOP_SECONDS = 5
PACKAGES = ("grpc", "grpc_status", "google.rpc", "zstandard")
"""Packages that ``pyspark[connect]`` adds."""


def missing() -> str | None:
    """The reason for which no client can run here; None if one can."""
    for name in PACKAGES:
        try:
            spec = importlib.util.find_spec(name)
        except ModuleNotFoundError:
            spec = None
        if spec is None:
            return f"no package {name}: pip install 'pyspark[connect]'"
    return None


@dataclass(frozen=True)
class ConnectServer:
    """A server that runs. ``log`` has what its Java prints."""

    url: str
    pid: int
    log: Path

    def run(self, script: str, *arguments: object, **variables: str) -> Run:
        """Runs a Python script as a client: ``SparkSession.builder.getOrCreate()`` of it is a session of this server.

        It is a process of its own, as the functions of pyspark choose between Connect and a driver's session once for each process.
        """
        words = (sys.executable, "-W", "ignore", "-c", script, *map(str, arguments))
        return run_process(*words, env={**_environment(), "SPARK_REMOTE": self.url, **variables}, timeout=SECONDS_MAX)


def _environment() -> dict[str, str]:
    """Variables of clients and of the server: no settings of this process, which may have a session of its own."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return {**own, "SPARK_LOCAL_IP": "127.0.0.1"}


@contextlib.contextmanager
def running(state: Path, master: str = "local[2]", settings: Mapping[str, str] | None = None) -> Iterator[ConnectServer]:
    """A server, until the end of the block. Its Python workers are of the interpreter that runs.

    They have the packages of this environment and get the code from a client. Code of the checkout is not on their path, unless it is
    installed; archives of clients take precedence.

    Args:
        state: directory for its log and its files.
        master: where it runs its jobs.
        settings: of Spark, in addition to the usual ones.
    """
    state.mkdir(parents=True, exist_ok=True)
    log = state / "server.log"
    words = [str(Path(pyspark.__path__[0]) / "bin" / "spark-submit"), "--class", SERVER, "--master", master]
    for name, value in {**SETTINGS, "spark.local.dir": str(state), **(settings or {})}.items():
        words += ["--conf", f"{name}={value}"]
    variables = {"JDK_JAVA_OPTIONS": JAVA_OPTIONS, **_environment(), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": ""}
    with log.open("wb") as output:
        # The script replaces itself by Java, so the process id is that of Java.
        process = subprocess.Popen(words, cwd=state, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        wait_until(lambda: STARTED.search(log.read_text()) or process.poll() is not None, "the server does not start")
        port = STARTED.search(log.read_text())
        assert port is not None, log.read_text()
        yield ConnectServer(f"sc://127.0.0.1:{port[1]}", process.pid, log)
    finally:
        # With a session of a client that did not close it, Java takes minutes to end after it has stopped its jobs.
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
