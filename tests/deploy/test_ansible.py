"""The plays of ``scripts/deploy/ansible`` over bundled directories as stopped brokers. With real brokers: test_rolling_upgrade.py."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from ansible_plays import PLAYS, program, run_play, sha256, write_inventory
from command import snaprebuild
from log_dirs import changes, missing_boundaries, snapshots_in, tree, truth
from manifests import FIXTURES
from other_process import live_broker
from sentences import NOT_APPROVED, USES_LOG_DIR

pytestmark = pytest.mark.full

LOGS = "kafka27-mixed"
"""The fixture, and the name of each log directory."""
MISSING = sorted(set(truth(LOGS, "mixed-0")) - {7045, 7637, 8231})
"""Boundaries of ``mixed-0`` that Kafka 2.7 left without a snapshot."""

OTHERS_RESTART = """
- hosts: kafka
  gather_facts: false
  serial: 1
  any_errors_fatal: true
  vars: {snaprebuild_gate_checks: 0}
  tasks:
    - include_role: {name: snaprebuild, tasks_from: pre_stop}
    - include_role: {name: snaprebuild, tasks_from: install}
    - include_role: {name: snaprebuild, tasks_from: post_start}
"""
"""A rolling restart of somebody else, of brokers that are stopped already; without Kafka there is no gate."""


@dataclass(frozen=True)
class Fleet:
    """Brokers of one cluster, each in a directory."""

    root: Path
    node_ids: tuple[int, ...]

    @property
    def inventory(self) -> Path:
        return self.root / "inventory.json"

    @property
    def approval(self) -> Path:
        return self.root / "approval"

    @property
    def brokers(self) -> list[Path]:
        return [self.root / f"kafka-{number}" for number in self.node_ids]

    def play(self, name: str, *options: str, exit_code: int = 0) -> str:
        """Runs a play and returns its output."""
        done = run_play(name, self.inventory, *options)
        assert done.returncode == exit_code, done.stdout + done.stderr
        return done.stdout

    def trees(self) -> dict[str, tuple[object, ...]]:
        """The trees of the brokers and the approvals, with the bytes of every file."""
        return {name: facts for name, facts in tree(self.root).items() if not name.startswith("ansible-home")}


TWO = (1, 2)
"""Node ids of the fewest brokers of which one can be restarted after another. A controller that is the last of them needs a third one."""


@pytest.fixture(params=[(1, 2, 3)], ids=["three"])
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Fleet:
    """Copies of the directory of one broker of 2.7.2, as a fleet."""
    if program("ansible-playbook") is None:
        pytest.skip("NOT RUN: the plays of Ansible: ansible-playbook is not installed (scripts/setup deploy)")
    fleet = Fleet(tmp_path, request.param)
    hosts = {}
    for number, broker in zip(fleet.node_ids, fleet.brokers, strict=True):
        shutil.copytree(FIXTURES / LOGS / "logs", broker / LOGS)
        meta = broker / LOGS / "meta.properties"
        meta.write_text(meta.read_text().replace("broker.id=1", f"broker.id={number}"))
        (broker / "server.properties").write_text(f"broker.id={number}\nlog.dirs={broker / LOGS}\n")
        hosts[broker.name] = {
            "snaprebuild_server_properties": str(broker / "server.properties"),
            "snaprebuild_staging_dirs": [str(broker / "staged")],
            "snaprebuild_state_dir": str(broker / "state"),
        }
    write_inventory(fleet.inventory, hosts, {"snaprebuild_approval_dir": str(fleet.approval)})
    return fleet


@pytest.mark.parametrize("fleet", [TWO], indirect=True, ids=["two"])
def test_prepare_approve_and_install(fleet: Fleet) -> None:
    restart = fleet.root / "restart.yml"
    restart.write_text(OTHERS_RESTART.replace("snaprebuild,", f"{PLAYS}/roles/snaprebuild,"))
    for name in ("prepare.yml", "roll.yml"):
        fleet.play(name, "--syntax-check")
    before = fleet.trees()
    fleet.play("prepare.yml", "--check")
    assert fleet.trees() == before, "--check has written"

    fleet.play("prepare.yml")
    plans = {broker.name: sha256(broker / "staged" / "plan.jsonl") for broker in fleet.brokers}
    assert json.loads((fleet.approval / "approvals.json").read_text()) == {"plans": plans}
    approved = sha256(fleet.approval / "approvals.json")
    assert f"approvals.json: SHA-256 {approved}" in (fleet.approval / "fleet.html").read_text()
    merged = json.loads((fleet.approval / "fleet.json").read_text())
    assert {each["node_id"] for each in merged["brokers"]} == set(fleet.node_ids)
    for broker in fleet.brokers:
        _, vanished, changed = changes(before, fleet.trees())
        assert (missing_boundaries(broker / LOGS / "mixed-0"), vanished, changed) == (MISSING, set(), set())

    prepared = fleet.trees()
    fleet.play(str(restart), "--check", "-e", f"snaprebuild_approved={approved}")
    assert fleet.trees() == prepared, "--check has written"
    assert "approvals.json has the SHA-256" in fleet.play(str(restart), exit_code=2)
    assert fleet.trees() == prepared, "nothing was approved"
    fleet.play(str(restart), "-e", f"snaprebuild_approved={approved}")
    for broker in fleet.brokers:
        installed = snapshots_in(broker / LOGS / "mixed-0")
        expected = truth(LOGS, "mixed-0")
        assert {offset: installed[offset] for offset in MISSING} == {offset: expected[offset] for offset in MISSING}
        (receipt,) = (broker / "state").glob("installed-*.jsonl")
        assert snaprebuild("verify", "--written-by", receipt, "--output", "json").totals == {"kept": 14}
        assert sha256(broker / "staged" / "plan.jsonl") != plans[broker.name], "it was staged once more"


ORDERS = {
    "KRaft": (
        "ClusterId:              c25hcHJlYnVpbGR0ZXN0cw\nLeaderId:               2\nLeaderEpoch:            1\nMaxFollowerLag:         0",
        "kafka-1, kafka-3, kafka-2",
    ),
    "ZooKeeper": (
        "Connecting to 127.0.0.1:28902\n\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null\n"
        '{"version":2,"brokerid":1,"timestamp":"1795712075933","kraftControllerEpoch":-1}',
        "kafka-2, kafka-3, kafka-1",
    ),
    "a controller that is no broker": ("LeaderId:               3001", "kafka-2, kafka-1, kafka-3"),
    "not looked up": (None, "kafka-2, kafka-1, kafka-3"),
}
"""Output of the tools of 4.3.1 and 3.9.2, and the order of restarts. In the last two ``snaprebuild_restart_order`` is 1, 0 and
2."""


@pytest.mark.parametrize("case", [next(iter(ORDERS)), *(pytest.param(each, marks=pytest.mark.night) for each in [*ORDERS][1:])])
def test_the_active_controller_is_last(case: str, fleet: Fleet) -> None:
    printed, expected = ORDERS[case]
    inventory = json.loads(fleet.inventory.read_text())
    if case not in ("KRaft", "ZooKeeper"):
        for name, order in (("kafka-1", 1), ("kafka-3", 2)):
            inventory["kafka"]["hosts"][name]["snaprebuild_restart_order"] = order
    inventory["kafka"]["vars"]["snaprebuild_controller_command"] = [] if printed is None else ["printf", "%s\n", printed]
    fleet.inventory.write_text(json.dumps(inventory))
    before = fleet.trees()
    shown = fleet.play("roll.yml", "--check", exit_code=2)
    assert f"msg: 'Order: {expected}'" in shown
    assert "Run prepare.yml, read the page" in " ".join(shown.split()), "nothing was approved"
    assert fleet.trees() == before


@pytest.mark.night
def test_no_broker_stops_if_the_active_controller_is_not_known(fleet: Fleet) -> None:
    command = json.dumps({"snaprebuild_controller_command": ["echo", "LeaderId: -1"], "snaprebuild_gate_delay": 0})
    shown = fleet.play("roll.yml", "-e", command, exit_code=2)
    assert "Ask which node is the active controller" in shown
    assert "Restart the brokers" not in shown


@pytest.mark.parametrize("fleet", [TWO], indirect=True, ids=["two"])
@pytest.mark.parametrize(
    ("controller", "expected"),
    [
        ([], "Not reached, or failed: kafka-1. No other broker stops."),
        pytest.param(["echo", "LeaderId: 2"], "UNREACHABLE", marks=pytest.mark.night),
    ],
)
def test_no_broker_stops_after_one_that_cannot_be_reached(controller: list[str], expected: str, fleet: Fleet) -> None:
    if program("ssh") is None:
        pytest.skip("NOT RUN: a broker that cannot be reached: ssh is not installed")
    fleet.play("prepare.yml")
    inventory = json.loads(fleet.inventory.read_text())
    inventory["kafka"]["vars"] |= {"snaprebuild_controller_command": controller, "snaprebuild_gate_checks": 0}
    inventory["kafka"]["hosts"]["kafka-1"] |= {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 1}
    fleet.inventory.write_text(json.dumps(inventory))
    before = fleet.trees()
    shown = fleet.play("roll.yml", "-e", f"snaprebuild_approved={sha256(fleet.approval / 'approvals.json')}", exit_code=4)
    assert expected in " ".join(shown.split())
    assert "Stop the broker" not in shown
    assert fleet.trees() == before


@pytest.mark.night
def test_a_broker_that_has_not_stopped(fleet: Fleet) -> None:
    restart = fleet.root / "restart.yml"
    restart.write_text(OTHERS_RESTART.replace("snaprebuild,", f"{PLAYS}/roles/snaprebuild,"))
    fleet.play("prepare.yml")
    approve = ("-e", f"snaprebuild_approved={sha256(fleet.approval / 'approvals.json')}", "-e", "snaprebuild_stop_retries=1")
    with live_broker(fleet.brokers[0] / LOGS):
        printed = fleet.play(str(restart), *approve, exit_code=2)
    assert f"{USES_LOG_DIR}. Stop it" in " ".join(printed.split())
    assert [missing_boundaries(broker / LOGS / "mixed-0") for broker in fleet.brokers] == [MISSING] * 3
    fleet.play(str(restart), *approve)
    assert [missing_boundaries(broker / LOGS / "mixed-0") for broker in fleet.brokers] == [[]] * 3


@pytest.mark.night
def test_a_plan_that_is_not_what_was_approved(fleet: Fleet) -> None:
    restart = fleet.root / "restart.yml"
    restart.write_text(OTHERS_RESTART.replace("snaprebuild,", f"{PLAYS}/roles/snaprebuild,"))
    fleet.play("prepare.yml")
    approvals = fleet.approval / "approvals.json"
    approve = ("-e", f"snaprebuild_approved={sha256(approvals)}")
    (copy,) = (fleet.brokers[0] / "state").glob("plan-*.jsonl")
    whole, before = copy.read_text(), fleet.trees()

    copy.write_text(whole.replace('"entries":', '"entries" :', 1))
    assert f"it {NOT_APPROVED}" in fleet.play(str(restart), *approve, exit_code=2)

    first = json.loads(whole.splitlines()[1])["snapshots"][0]["sha256"]
    copy.write_text(whole.replace(first, "0" * 64, 1))
    renamed = copy.rename(copy.with_name(f"plan-{sha256(copy)}.jsonl"))
    approvals.write_text(approvals.read_text().replace(copy.stem.removeprefix("plan-"), renamed.stem.removeprefix("plan-")))
    printed = fleet.play(str(restart), "-e", f"snaprebuild_approved={sha256(approvals)}", exit_code=2)
    assert "approved snapshots have other bytes now" in printed
    logs = {name for name in before if f"/{LOGS}/" in name}
    assert {name: fleet.trees()[name] for name in logs} == {name: before[name] for name in logs}
