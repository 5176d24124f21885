"""``roll.yml`` on three real brokers with clients at work: from 2.7.2 to 3.9.2, then the protocol, then remote storage."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_plays import PLAYS, program, run_play, write_inventory
from manifests import REPOSITORY
from three_brokers import Release, broker_at, broker_dirs

pytestmark = [pytest.mark.night, pytest.mark.broker]

SECONDS_MAX = 3600.0


GATE = f"""
- hosts: kafka
  gather_facts: false
  tasks:
    - include_role: {{name: {PLAYS}/roles/snaprebuild, tasks_from: gate}}
"""


@pytest.fixture(autouse=True)
def tools() -> None:
    lacking = [each for each in ("java", "mvn", "ansible-playbook") if program(each) is None]
    if lacking:
        pytest.skip(f"NOT RUN: a rolling upgrade of real brokers (marker broker): not on PATH: {', '.join(lacking)}")


def test_the_gate_sees_an_under_replicated_partition(tmp_path: Path) -> None:
    """Also where the brokers that answer are as many as there should be."""
    brokers = [broker_at(each) for each in broker_dirs(tmp_path, Release("3.9.2", "3.9"))]
    play, inventory = tmp_path / "gate.yml", tmp_path / "inventory.json"
    play.write_text(GATE)
    command = [sys.executable, str(Path(__file__).with_name("three_brokers.py")), str(brokers[0].root)]
    variables = {
        "snaprebuild_bootstrap_server": ",".join(each.address for each in brokers),
        "snaprebuild_kafka_topics": [*command, "topics"],
        "snaprebuild_kafka_api_versions": [*command, "api-versions"],
        "snaprebuild_gate_checks": 1,
        "snaprebuild_gate_pause": 1,
        "snaprebuild_gate_delay": 1,
        "snaprebuild_gate_retries": 3,
    }
    write_inventory(inventory, {"kafka-1": {}}, variables)
    try:
        for broker in brokers:
            broker.start()
        brokers[0].create_topic("orders", {"min.insync.replicas": 2}, replicas=3)
        whole = run_play(str(play), inventory, "-e", "snaprebuild_brokers=3")
        assert whole.returncode == 0, whole.stdout
        brokers[2].stop()
        down = run_play(str(play), inventory, "-e", "snaprebuild_brokers=3")
        assert (down.returncode, "until no partition is" in down.stdout) == (2, False), down.stdout
        lagging = run_play(str(play), inventory, "-e", "snaprebuild_brokers=2")
        assert (lagging.returncode, "Topic: orders\tPartition: 0" in lagging.stdout.replace("\\t", "\t")) == (2, True), (
            lagging.stdout
        )
    finally:
        for broker in brokers:
            broker.kill_all()


def test_the_whole_upgrade(tmp_path: Path) -> None:
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "TMPDIR": str(tmp_path)}
    command = [REPOSITORY / "scripts" / "demo" / "rolling_upgrade.py", "-q"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "each as expected" in done.stdout.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []
