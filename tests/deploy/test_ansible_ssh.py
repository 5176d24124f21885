"""The plays over SSH, with ``become``, several log directories and units of systemd. A unit that holds the locks is the broker."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_plays import program, run_play, write_inventory
from debian_machine import Machine, booted, missing
from log_dirs import tree
from manifests import FIXTURES

LOGS = FIXTURES / "kafka4-mixed" / "logs"
"""What one broker of 4.3.1 left, with all its snapshots: their bytes are expected."""
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

pytestmark = [pytest.mark.night, pytest.mark.root]


@dataclass(frozen=True)
class Fleet:
    """Both brokers, on one machine."""

    machine: Machine
    here: Path

    def play(self, name: str, *options: str, exit_code: int = 0) -> str:
        """What a play prints."""
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

    def processes(self) -> list[str]:
        """Main processes of the units; 0 is none."""
        return self.machine.run("systemctl", "show", "--property", "MainPID", "--value", *BROKERS).split()


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The two log directories of the first broker are file systems of their own. Both brokers run."""
    reason = "not on PATH: ansible-playbook" if program("ansible-playbook") is None else missing()
    if reason is not None:
        pytest.skip(f"NOT RUN: the plays over SSH: {reason}")
    units = [UNIT.format(name=name, commas=",".join(places), spaces=" ".join(places)) for name, places in BROKERS.items()]
    with booted(tmp_path, setup=SETUP + "".join(units), tmpfs=("/var/lib/kafka/d1", "/var/lib/kafka/d2")) as machine:
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
        (tmp_path / "upgrade.yml").write_text("- assert: {that: inventory_hostname != fail_at | default('')}\n")
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
    approved = hashlib.sha256((fleet.here / "approval" / "approvals.json").read_bytes()).hexdigest()
    approve = ("-e", f"snaprebuild_approved={approved}")
    prepared = fleet.trees()
    fleet.play("roll.yml", "--check", *approve)
    assert (fleet.trees(), fleet.processes()) == (prepared, processes), "--check has written"

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
