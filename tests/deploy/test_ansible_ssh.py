"""The plays over SSH, with ``become``, several log directories and units of systemd: one is a real broker, others only hold locks."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_plays import program, run_play, sha256, write_inventory
from broker_settings import common_settings, first_kraft_settings
from debian_machine import Machine, booted, missing
from free_ports import free_ports
from kafka_classpath import kafka_classpath
from kafka_node import CLUSTER_ID
from log_dirs import tree
from manifests import FIXTURES

LOGS = FIXTURES / "kafka4-mixed" / "logs"
"""The log directory of one broker of 4.3.1, with all its snapshots: their bytes are expected."""
PARTITIONS = {each.name for each in LOGS.glob("*-0")}
REMOVED = {
    f"{each.parent.name}/{each.name}": each.read_bytes() for each in LOGS.glob("*/*.snapshot") if each.with_suffix(".log").exists()
}
"""Snapshots that the copies do not have. The one at the log end stays, as under 2.7."""
OWNER = (7001, 7002)
"""User and group of the brokers."""
BROKERS = {
    "kafka-1": {"/var/lib/kafka/d1/logs": {"mixed-0"}, "/var/lib/kafka/d2/logs": PARTITIONS - {"mixed-0"}},
    "kafka-2": {"/srv/kafka/logs": PARTITIONS},
}
"""Partitions in each log directory."""
HOSTS = {
    "kafka-1": {
        "ansible_user": "admin",
        "ansible_become_user": "root",
        "snaprebuild_server_properties": "/etc/kafka-1.properties",
        "snaprebuild_staging_dirs": ["/var/lib/kafka/d1/staged", "/var/lib/kafka/d2/staged"],
        "snaprebuild_stop_command": ["systemctl", "stop", "kafka-1"],
        "snaprebuild_start_command": ["systemctl", "start", "kafka-1"],
    },
    "kafka-2": {
        "ansible_user": "deploy",
        "ansible_pipelining": True,
        "snaprebuild_server_properties": "/etc/kafka-2.properties",
        "snaprebuild_staging_dirs": ["/srv/kafka/staged"],
        "snaprebuild_state_dir": "/srv/kafka/state",
        "snaprebuild_stop_command": ["sudo", "systemctl", "stop", "kafka-2"],
        "snaprebuild_start_command": ["sudo", "systemctl", "start", "kafka-2"],
    },
}
"""The plays become root on the first broker, and on the second the user of the broker, who may do no more than stop and start it."""

SETUP = """
groupadd --gid 7002 kafka && useradd --uid 7001 --gid kafka --home-dir /nonexistent --shell /usr/sbin/nologin kafka
useradd --create-home --shell /bin/sh admin && useradd --create-home --shell /bin/sh deploy
cat > /etc/sudoers.d/logins <<END
Defaults umask=0077
admin ALL=(root) NOPASSWD: ALL
deploy ALL=(kafka) NOPASSWD: ALL
kafka ALL=(root) NOPASSWD: /usr/bin/systemctl stop kafka-2, /usr/bin/systemctl start kafka-2
END
cat > /usr/local/bin/holds_locks.py <<END
import fcntl, glob, os, signal, socket, sys
locks = [open(each + "/.lock", "a+b") for each in sys.argv[1:]]
for each in locks:
    fcntl.lockf(each, fcntl.LOCK_EX | fcntl.LOCK_NB)
for each in sys.argv[1:]:
    for path in glob.glob(each + "/*/*"):
        open(path, "r+b").close() # as a broker that loads its logs
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])
signal.pause()
END
"""
UNIT = """
echo log.dirs={commas} > /etc/{name}.properties
printf '[Service]\\nType=notify\\nUser=kafka\\nExecStart=/usr/bin/python3 /usr/local/bin/holds_locks.py {spaces}\\n' \\
  > /etc/systemd/system/{name}.service
"""

UPGRADE = """
- assert: {that: inventory_hostname != fail_at | default('')}
- command: sh -c 'kill $(ps -o pid= -u admin)' # ends the connection
  when: inventory_hostname == cut_at | default('')
"""

KAFKA = """
mkdir /etc/kafka
printf '%s' '{properties}' > /etc/kafka/server.properties
printf '[Service]\\nUser=kafka\\nSuccessExitStatus=143\\nExecStart=/usr/bin/java -Xmx384m -cp {classpath} kafka.Kafka %s\\n' \\
  /etc/kafka/server.properties > /etc/systemd/system/kafka.service
for each in topics=TopicCommand metadata-quorum=MetadataQuorumCommand broker-api-versions=BrokerApiVersionsCommand; do
  tool="/usr/local/bin/kafka-${{each%=*}}.sh"
  printf '#!/bin/sh\\nexec java -Xmx256m -cp {classpath} org.apache.kafka.tools.%s "$@"\\n' "${{each#*=}}" > "$tool"
  chmod 755 "$tool"
done
"""
DISKS = ("/var/lib/kafka/d1", "/var/lib/kafka/d2")
"""File systems of their own."""
SECONDS_MAX = 120.0

pytestmark = [pytest.mark.night, pytest.mark.root]


@dataclass(frozen=True)
class Fleet:
    """Both brokers, on one machine."""

    machine: Machine
    here: Path

    def play(self, name: str, *options: str, exit_code: int = 0) -> str:
        """Runs a play and returns its output."""
        done = run_play(name, self.here / "inventory.json", *options)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    def trees(self, *places: str) -> dict[str, tuple[object, ...]]:
        """All that the plays may write, or some of it."""
        places = places or ("/var/lib/kafka", "/srv/kafka", "/var/lib/snaprebuild")
        return {f"{place}/{name}": facts for place in places for name, facts in tree(self.machine.at(place)).items()}

    def snapshots(self, broker: str) -> dict[str, Path]:
        """Files of a broker by partition and name."""
        found = [each for place in BROKERS[broker] for each in self.machine.at(place).glob("*/*.snapshot")]
        return {f"{each.parent.name}/{each.name}": each for each in found}

    def missing(self) -> list[int]:
        """How many snapshots each broker lacks."""
        return [len(REMOVED.keys() - self.snapshots(broker)) for broker in BROKERS]

    def processes(self, *units: str) -> list[str]:
        """Main processes of units, in the machine; 0 is none."""
        return self.machine.run("systemctl", "show", "--property", "MainPID", "--value", *(units or BROKERS)).split()


def skip_where_missing(*further: str) -> None:
    """``further``: programs that a test needs."""
    absent = [name for name in ("ansible-playbook", *further) if program(name) is None]
    reason = f"not on PATH: {', '.join(absent)}" if absent else missing()
    if reason is not None:
        pytest.skip(f"NOT RUN: the plays over SSH: {reason}")


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The two log directories of the first broker are file systems of their own. Both brokers run."""
    skip_where_missing()
    units = [UNIT.format(name=name, commas=",".join(places), spaces=" ".join(places)) for name, places in BROKERS.items()]
    with booted(tmp_path, setup=SETUP + "".join(units), tmpfs=DISKS) as machine:
        for number, places in enumerate(BROKERS.values(), 1):
            for place, partitions in places.items():
                make_log_dir(machine.at(place), number, partitions)
        machine.run("systemctl", "start", *BROKERS)
        variables = {
            "snaprebuild_command": ["snaprebuild"],
            "snaprebuild_approval_dir": str(tmp_path / "approval"),
            "snaprebuild_controller_command": [],
            "snaprebuild_gate_checks": 0,
            "snaprebuild_verify_contents": True,
            "snaprebuild_upgrade_tasks": str(tmp_path / "upgrade.yml"),
        }
        (tmp_path / "upgrade.yml").write_text(UPGRADE)
        become = {"ansible_become": True, "ansible_become_user": "kafka"}
        write_inventory(tmp_path / "inventory.json", HOSTS, machine.variables | variables, become)
        yield Fleet(machine, tmp_path)


def make_log_dir(place: Path, node_id: int, partitions: set[str]) -> None:
    """A copy of some partitions of the fixture that lacks snapshots, of the user of the brokers."""
    shutil.copytree(LOGS, place)
    for each in PARTITIONS - partitions:
        shutil.rmtree(place / each)
    for name in REMOVED:
        (place / name).unlink(missing_ok=True)
    meta = place / "meta.properties"
    text = re.sub("(?m)^directory.id=.*$", f"directory.id={place.parent.name:A<22}", meta.read_text())
    meta.write_text(text.replace("node.id=1", f"node.id={node_id}"))
    for path in [place.parent, place, *place.rglob("*")]:
        os.chown(path, *OWNER)
        path.chmod(0o750 if path.is_dir() else 0o640)


def test_prepare_and_roll(fleet: Fleet) -> None:
    before, lacking, processes = fleet.trees(), [len(REMOVED)] * 2, fleet.processes()
    fleet.play("prepare.yml", "--check")
    assert fleet.trees() == before, "--check has written"

    fleet.play("prepare.yml")
    scans = [json.loads((fleet.here / "approval" / "scans" / f"{name}.json").read_text()) for name in BROKERS]
    assert [each["totals"]["missing"] for each in scans] == fleet.missing() == lacking
    assert [{each["path"] for each in scan["log_dirs"]} for scan in scans] == [{*places} for places in BROKERS.values()]
    approve = ("-e", f"snaprebuild_approved={sha256(fleet.here / 'approval' / 'approvals.json')}")
    prepared = fleet.trees()
    fleet.play("roll.yml", "--check", *approve)
    assert (fleet.trees(), fleet.processes()) == (prepared, processes), "--check has written"

    shown = fleet.play("roll.yml", *approve, "-e", "cut_at=kafka-1", exit_code=4)
    assert "Not reached, or failed: kafka-1. No other broker stops." in " ".join(shown.split())
    assert (fleet.missing(), fleet.processes()) == ([0, len(REMOVED)], ["0", processes[1]])
    fleet.play("roll.yml", *approve, "-e", "fail_at=kafka-2", exit_code=2)
    rolled = fleet.processes()
    assert rolled[0] not in (processes[0], "0"), "it was not restarted"
    assert rolled[1] == "0"
    first = fleet.trees("/var/lib/kafka", "/var/lib/snaprebuild")
    fleet.play("roll.yml", *approve)
    assert fleet.trees("/var/lib/kafka", "/var/lib/snaprebuild") == first, "the first broker was done"
    for broker, places in BROKERS.items():
        found = fleet.snapshots(broker)
        assert {name: found[name].read_bytes() for name in REMOVED} == REMOVED
        status = {name: found[name].stat() for name in REMOVED}
        assert {(each.st_uid, each.st_gid, stat.S_IMODE(each.st_mode)) for each in status.values()} == {(*OWNER, 0o640)}
        assert {facts[1:3] for facts in fleet.trees(*places).values()} == {OWNER}

    done, processes = fleet.trees(), fleet.processes()
    assert (processes[0], processes[1] != "0") == (rolled[0], True)
    assert len(re.findall(r"changed=0 ", fleet.play("roll.yml", *approve))) == len(BROKERS)
    assert (fleet.trees(), fleet.processes()) == (done, processes)


def produce(address: str) -> None:
    """Rolls some segments of four partitions, by an idempotent producer."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", 4, 1, config={"internal.segment.bytes": "65536"})])["orders"].result(SECONDS_MAX)
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True, "batch.num.messages": 5})
    for number in range(8000):
        producer.produce("orders", bytes(100), partition=number % 4)
    assert producer.flush(SECONDS_MAX) == 0


@pytest.mark.broker
def test_a_broker_of_kafka(tmp_path: Path) -> None:
    """4.3.1, by its own tools and the settings of the role. The snapshots that it wrote are removed, and expected again."""
    skip_where_missing("java", "mvn")
    port, controller_port = free_ports(2)
    logs, classpath = [f"{disk}/logs" for disk in DISKS], kafka_classpath()
    settings = common_settings(tmp_path) | first_kraft_settings(f"127.0.0.1:{port}", f"127.0.0.1:{controller_port}", None)
    properties = "".join(f"{name}={value}\n" for name, value in (settings | {"log.dirs": ",".join(logs)}).items())
    setup = SETUP + KAFKA.format(properties=properties, classpath=classpath)
    jars = Path(os.path.commonpath(classpath.split(":")))
    with booted(tmp_path, setup=setup, tmpfs=DISKS, readable=[jars]) as machine:
        machine.run("install", "--directory", "--owner=kafka", "--group=kafka", *logs)
        storage = ["java", "-cp", classpath, "kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID]
        machine.run("runuser", "-u", "kafka", "--", *storage, "-c", "/etc/kafka/server.properties")
        machine.run("systemctl", "start", "kafka")
        produce(f"127.0.0.1:{port}")
        paths = [each for place in logs for each in machine.at(place).glob("orders-*/*.snapshot")]
        expected = {each: each.read_bytes() for each in paths if each.with_suffix(".log").exists()}
        assert len({each.parents[1] for each in expected}) == len(DISKS)
        for path in expected:
            path.unlink()

        variables = {
            "ansible_user": "admin",
            "ansible_become": True,
            "snaprebuild_command": ["snaprebuild"],
            "snaprebuild_staging_dirs": [f"{disk}/staged" for disk in DISKS],
            "snaprebuild_approval_dir": str(tmp_path / "approval"),
            "snaprebuild_bootstrap_server": f"127.0.0.1:{port}",
            "snaprebuild_gate_checks": 2,
            "snaprebuild_gate_pause": 1,
            "snaprebuild_gate_delay": 1,
        }
        fleet = Fleet(machine, tmp_path)
        write_inventory(tmp_path / "inventory.json", {"kafka-1": {}}, machine.variables | variables)
        fleet.play("prepare.yml")
        approve = ("-e", f"snaprebuild_approved={sha256(tmp_path / 'approval' / 'approvals.json')}")
        before, printed = fleet.processes("kafka"), fleet.play("roll.yml", *approve)
        count = len(expected)
        assert f"{count} snapshots were missing. {count} snapshots installed in 4 partitions. Stop to start:" in " ".join(
            printed.split()
        )
        assert {each: each.read_bytes() for each in expected} == expected
        assert {facts[1:3] for facts in fleet.trees(*logs).values()} == {OWNER}
        running = fleet.processes("kafka")
        assert running not in (before, ["0"])
        assert "changed=0 " in fleet.play("roll.yml", *approve)
        assert fleet.processes("kafka") == running
