"""``snaprebuild fleet`` as a user runs it, on the disks of three real nodes whose old snapshots were taken away."""

import json
import re
import shutil
from pathlib import Path

import pytest
from budgets import first_of
from command import Run, in_json, snaprebuild
from manifests import CLUSTER
from pages import data_of

OLD = {1: ("orders-0", "orders-1", "reborn-0"), 2: ("orders-0", "reborn-0"), 3: ("orders-0", "shrink-0")}
"""Replicas without their old snapshots, by node."""
OUTCOMES = {"orders-0": "repair", "orders-1": "elect", "reborn-0": "elect", "shrink-0": "elect", "single-0": "verify"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fleet")
    for node, partitions in OLD.items():
        shutil.copytree(CLUSTER / f"node{node}", place / f"node{node}")
        for partition in partitions:
            for snapshot in sorted((place / f"node{node}" / partition).glob("*.snapshot"))[:-1]:
                snapshot.unlink()
        (place / f"{node}.json").write_text(snaprebuild("scan", place / f"node{node}", "--output", "json").stdout)
    return place


def merged(place: Path, *options: object) -> Run:
    return in_json("fleet", *(place / f"{node}.json" for node in OLD), *options)


def test_three_brokers(place: Path) -> None:
    """orders-0 has lost its snapshots everywhere; of the others a replica has all."""
    run = merged(place, "--assume", "rate=1")
    assert run.exit_code == 1
    by_name = {each["topic_partition"]: each for each in run.document["partitions"]}
    assert {name: each["outcome"] for name, each in by_name.items()} == OUTCOMES
    for name, partition in by_name.items():
        states = {each["node_id"]: each["state"] for each in partition["replicas"]}
        assert states == {node: "rebuild" if name in OLD[node] else "ready" for node in states}
    assert [by_name[name]["elect"] for name in ("orders-1", "reborn-0", "shrink-0")] == [2, 3, 1]
    closed = sum(path.stat().st_size for path in sorted((CLUSTER / "node1/orders-0").glob("*.log"))[:-1])
    (step,) = run.document["steps"]
    assert by_name["orders-0"]["stuck_bytes"] == step["replay_bytes"] == closed
    assert run.document["totals"]["estimated_seconds"] == round(closed / (1 << 20), 1)
    assert f"cluster.id={run.document['cluster_id']}\n" in (CLUSTER / "node1/meta.properties").read_text()
    assert (run.document["has_metadata"], run.document["elections"]) == (False, None)
    assert len(run.document["assumes"]) == 3


def test_table_and_page(place: Path, tmp_path: Path) -> None:
    page, document = tmp_path / "fleet.html", tmp_path / "fleet.json"
    run = snaprebuild("fleet", *(place / f"{node}.json" for node in OLD), "--controller", 1, "--save-json", document)
    assert run.exit_code == 1
    assert snaprebuild("report", document, "--html", page).exit_code == 0
    assert "1 broker to repair, and no smaller set holds a replica of each partition." in run.text
    assert "stop, rebuild, start" in run.stdout
    assert "3 partitions: elect the replica that has every snapshot" in run.text
    data = data_of(page)
    assert {each["topic_partition"]: each["outcome"] for each in data["partitions"]} == OUTCOMES
    (table,) = data["tables"]
    assert len(table["rows"]) == 1
    # And as a document next to the scans of the brokers.
    assert snaprebuild("report", document, place / "1.json", "--html", tmp_path / "both.html").exit_code == 0
    names = [each["topic_partition"] for each in data_of(tmp_path / "both.html")["partitions"]]
    assert names.count("orders-0") == 2, "the cluster's, and the replica"


def test_what_is_refused(place: Path, tmp_path: Path) -> None:
    run = snaprebuild("fleet", place / "1.json", place / "1.json")
    assert run.exit_code == 2
    half = tmp_path / "half.json"
    half.write_text((place / "2.json").read_text()[:5000])
    run = snaprebuild("fleet", place / "1.json", half)
    assert (run.exit_code, run.stdout) == (2, "")
    position = re.match(rf"snaprebuild: {half}: is damaged: byte (\d+): ", run.stderr)
    assert position is not None, run.stderr
    assert 4000 < int(position[1]) <= 5000, "where the value begins that has no end"
    assert run.stderr.count("\n") == 1


def test_elections_are_files_that_kafka_reads(place: Path, tmp_path: Path) -> None:
    """Their content is tested in tests/cluster/test_fleet.py."""
    directory = tmp_path / "elections"
    run = merged(place, "--metadata", place / "node1", "--elections", directory)
    image = json.loads((CLUSTER / "expected/image-final.json").read_text())
    known = {f"{topic['name']}-{each['partition']}": each for topic in image["topics"] for each in topic["partitions"]}
    assert run.document["has_metadata"] is True
    for each in run.document["partitions"]:
        assert each["in_sync"] == sorted([*known[each["topic_partition"]]["isr"], *known[each["topic_partition"]]["elr"]])
    node = run.document["steps"][0]["node_id"]
    assert ([node] in [[*each["isr"], *each["elr"]] for each in known.values()]) == ("last-in-sync" in run.codes)
    by_moment = {each["after_step"]: each for each in run.document["elections"]}
    assert by_moment[1]["after_node_id"] == node
    for step, moment in by_moment.items():
        name = "now" if step is None else f"step-{step}"
        elected = json.loads((directory / f"{name}-election.json").read_text())
        assert {each["topic"] for each in elected["partitions"]} == {each["topic"] for each in moment["partitions"]}


def test_elections_that_are_refused(place: Path, tmp_path: Path) -> None:
    scan, metadata = place / "1.json", ("--metadata", place / "node1")
    (tmp_path / "full" / "file").mkdir(parents=True)
    full = snaprebuild("fleet", scan, *metadata, "--elections", tmp_path / "full")
    assert (full.exit_code, "is not empty" in full.stderr) == (3, True)
    blind = snaprebuild("fleet", scan, "--elections", tmp_path / "new")
    assert (blind.exit_code, "needs --metadata" in blind.stderr) == (2, True)
    inside = snaprebuild("fleet", scan, *metadata, "--elections", place / "node1/x/y")
    assert (inside.exit_code, (place / "node1/x").exists()) == (3, False)
    empty = snaprebuild("fleet", scan, "--elections", "")
    assert (empty.exit_code, empty.stderr) == (2, "snaprebuild: --elections: the path is empty\n")


@pytest.mark.parametrize("change", first_of(["malformed replication-offset-checkpoint", "a directory that is no partition"]))
def test_a_broker_that_does_not_start_is_named_as_by_scan(change: str, tmp_path: Path) -> None:
    for node in (1, 2, 3):
        shutil.copytree(CLUSTER / f"node{node}", tmp_path / f"node{node}")
    if change.startswith("malformed"):
        (tmp_path / "node2" / "replication-offset-checkpoint").write_text("rubbish\n")
    else:
        (tmp_path / "node2" / "backup").mkdir()
    for node in (1, 2, 3):
        (tmp_path / f"{node}.json").write_text(snaprebuild("scan", tmp_path / f"node{node}", "--output", "json").stdout)
    options = [*(tmp_path / f"{node}.json" for node in (1, 2, 3)), "--metadata", tmp_path / "node1"]
    run = in_json("fleet", *options)
    assert run.exit_code == 4
    states = {each["state"] for found in run.document["partitions"] for each in found["replicas"] if each["node_id"] == 2}
    assert states == {"blocked"}
    (finding,) = [each for each in run.document["findings"] if each["code"] == "broker-does-not-start"]
    assert change in finding["message"]
    table = snaprebuild("fleet", *options)
    assert "No broker has to be repaired" not in table.text
    assert "1 broker (2): correct the next start before any restart." in table.text


def test_brokers_that_count_as_stopped(place: Path) -> None:
    """Two of three brokers are stopped: the third one must stay, and the order is printed for what there is."""
    scans = [place / f"{node}.json" for node in OLD]
    run = merged(place, "--assume", "down=2", "--assume", "down=3")
    restarts = {each["node_id"]: each["go"] for each in run.document["upgrade"] if each["kind"] == "restart"}
    assert restarts == {1: "no-go", 2: "no-go", 3: "no-go"}
    (step,) = run.document["steps"]
    assert (step["node_id"], "broker 2 counts as stopped; broker 3 counts as stopped" in step["hold"]) == (1, True)
    text = " ".join(snaprebuild("fleet", *scans, "--assume", "down=2", "--assume", "down=3").text.split())
    assert "1 broker to repair; 99.5 KiB cannot be uploaded. Do not restart 1 broker (1) yet." in text
    assert "NOT YET" in text
    assert "no-go, restart 1: no replica that may lead would be left of" in text
    assert "Assumed: 2 brokers (2, 3) stopped, as --assume down says." in text
    assert snaprebuild("fleet", *scans, "--assume", "down=9").exit_code == 2
