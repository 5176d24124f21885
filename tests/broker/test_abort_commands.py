"""Kafka's own tool takes the commands that are printed: it continues to the cluster, which is not there."""

import json
import os
import re
import shlex
import subprocess
import zipfile
from pathlib import Path

import pytest
from kafka_classpath import KAFKA_VERSION, OTHER_VERSIONS, kafka_classpath
from log_dirs import TRANSACTIONAL, batch, write_partition

from snaprebuild.inspect.late_transactions import abort_commands
from snaprebuild.inspect.transactions import read_transactions
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import open_source

pytestmark = pytest.mark.kafka

CLOSED_PORT = "127.0.0.1:1"


def run_tool(version: str, command: str, config: Path) -> subprocess.CompletedProcess[str]:
    """The command as it is printed, with an address that no one listens on and short timeouts."""
    script, option, address, *arguments = shlex.split(command)
    assert (script, option, address) == ("kafka-transactions.sh", "--bootstrap-server", "HOST:PORT")
    java = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", kafka_classpath(version)]
    tool = ["org.apache.kafka.tools.TransactionsCommand", option, CLOSED_PORT, "--command-config", str(config)]
    return subprocess.run([*java, *tool, *arguments], capture_output=True, text=True, check=False, timeout=180)


@pytest.mark.parametrize("version", [KAFKA_VERSION, *OTHER_VERSIONS])
def test_the_tool_takes_the_commands(version: str, tmp_path: Path) -> None:
    data = batch(5, producer_id=2**62, epoch=2**15 - 1, attributes=TRANSACTIONAL)
    write_partition(tmp_path / "a.topic_with-dashes-11", {5: data})
    (found,) = read_transactions(open_source([str(tmp_path)]), Run(clock=Clock(0, 1)), 0).partitions
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=1500\nrequest.timeout.ms=1000\n")
    commands = abort_commands(found.source, found.reported.open[0])
    new = commands.since_3_0
    old = commands.before_3_0
    understood = {new: [], old: [f"producerId={2**62}", f"producerEpoch={2**15 - 1}", "coordinatorEpoch=0"]}
    for command, words in understood.items():
        done = run_tool(version, command, config)
        said = done.stdout + done.stderr
        assert done.returncode != 0
        for word in ("Timed out waiting for a node", "a.topic_with-dashes-11", *words):
            assert word in said
        assert "usage:" not in said
    misspelt = run_tool(version, old.replace("--producer-epoch", "--epoch"), config)
    assert "usage:" in misspelt.stdout + misspelt.stderr, "a wrong option is told as such"


@pytest.mark.parametrize(("version", "speaks"), [(OTHER_VERSIONS[0], True), (KAFKA_VERSION, False)])
def test_which_tool_reaches_brokers_before_2_8(version: str, speaks: bool) -> None:
    """They take version 0 of the request that writes markers, and no other."""
    (clients,) = [jar for jar in kafka_classpath(version).split(os.pathsep) if Path(jar).name == f"kafka-clients-{version}.jar"]
    with zipfile.ZipFile(clients) as jar:
        schema = jar.read("common/message/WriteTxnMarkersRequest.json").decode()
    first, _ = json.loads(re.sub(r"^ *//.*$", "", schema, flags=re.MULTILINE))["validVersions"].split("-")
    assert (first == "0") == speaks
