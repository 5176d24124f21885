"""``snaprebuild fleet`` as a user runs it, on the disks of three real nodes whose old snapshots were taken away."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from command import Run
from in_process import in_json, snaprebuild
from manifests import FIXTURES
from pages import data_of

CLUSTER = FIXTURES / "kraft-cluster3"

OLD = {1: ("orders-0", "orders-1", "reborn-0"), 2: ("orders-0", "reborn-0"), 3: ("orders-0", "shrink-0")}
"""Replicas without their old snapshots, by node."""


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
    run = merged(place, "--assume", "rate=1")
    assert run.exit_code == 1
    by_name = {f"{each['topic']}-{each['partition']}": each for each in run.document["partitions"]}
    # orders-0 has lost them everywhere; of the others a replica has all.
    assert {name: each["outcome"] for name, each in by_name.items()} == {
        "orders-0": "treat",
        "orders-1": "elect",
        "reborn-0": "elect",
        "shrink-0": "elect",
        "single-0": "verify",
    }
    states = {name: {each["node_id"]: each["state"] for each in partition["replicas"]} for name, partition in by_name.items()}
    for name, replicas in states.items():
        assert replicas == {node: "rebuild" if name in OLD[node] else "ready" for node in replicas}
    assert [by_name[name]["elect"] for name in ("orders-1", "reborn-0", "shrink-0")] == [2, 3, 1]
    segments = sorted((CLUSTER / "node1/orders-0").glob("*.log"))
    sizes = [path.stat().st_size for path in segments]
    assert by_name["orders-0"]["stuck_bytes"] == sum(sizes[:-1]), "all that are closed"
    (step,) = run.document["steps"]
    assert step["replay_bytes"] == sum(sizes[:-1])
    assert run.document["totals"]["estimated_seconds"] == round(sum(sizes[:-1]) / (1 << 20), 1)
    meta = (CLUSTER / "node1/meta.properties").read_text()
    assert f"cluster.id={run.document['cluster_id']}\n" in meta
    assert run.document["has_metadata"] is False
    assert len(run.document["assumes"]) == 3


def test_what_the_metadata_log_adds(place: Path) -> None:
    run = merged(place, "--metadata", place / "node1")
    image = json.loads((CLUSTER / "expected/image-final.json").read_text())
    isr = {
        f"{topic['name']}-{each['partition']}": [*each["isr"], *each["elr"]]
        for topic in image["topics"]
        for each in topic["partitions"]
    }
    for each in run.document["partitions"]:
        assert each["in_sync"] == sorted(isr[f"{each['topic']}-{each['partition']}"])
    assert run.document["has_metadata"] is True
    alone = [name for name, nodes in isr.items() if nodes == [run.document["steps"][0]["node_id"]]]
    assert bool(alone) == ("last-in-sync" in run.codes)


def test_table_and_page(place: Path, tmp_path: Path) -> None:
    page, document = tmp_path / "fleet.html", tmp_path / "fleet.json"
    run = snaprebuild("fleet", *(place / f"{node}.json" for node in OLD), "--controller", 1, "--save-json", document)
    assert run.exit_code == 1
    assert snaprebuild("report", document, "--html", page).exit_code == 0
    assert "1 broker to treat, and no smaller set holds a replica of each partition." in run.text
    assert "stop, rebuild, start" in run.stdout
    assert "3 partitions: elect the replica that has every snapshot" in run.text
    data = data_of(page)
    assert {each["name"]: each["outcome"] for each in data["partitions"]} == {
        "orders-0": "treat",
        "orders-1": "elect",
        "reborn-0": "elect",
        "shrink-0": "elect",
        "single-0": "verify",
    }
    (table,) = data["tables"]
    assert len(table["rows"]) == 1
    # And as a document beside the scans of the brokers.
    assert snaprebuild("report", document, place / "1.json", "--html", tmp_path / "both.html").exit_code == 0
    names = [each["name"] for each in data_of(tmp_path / "both.html")["partitions"]]
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
    """Replicas in an order that makes the wanted one the preferred leader; what cannot lead now is left out."""
    directory = tmp_path / "elections"
    run = merged(place, "--metadata", place / "node1", "--elections", directory)
    image = json.loads((CLUSTER / "expected/image-final.json").read_text())
    known = {f"{topic['name']}-{each['partition']}": each for topic in image["topics"] for each in topic["partitions"]}
    wanted: dict[str, dict[str, int]] = {}
    for each in run.document["partitions"]:
        name = f"{each['topic']}-{each['partition']}"
        if each["elect"] is not None and each["condition"] is None:
            wanted.setdefault("step-1" if each["outcome"] == "treat" else "now", {})[name] = each["elect"]
    assert wanted["step-1"], "behind the restart of the broker that is treated"
    for moment, leaders in wanted.items():
        elected = json.loads((directory / f"{moment}-election.json").read_text())
        assert elected.keys() == {"partitions"}
        assert {f"{each['topic']}-{each['partition']}" for each in elected["partitions"]} == leaders.keys()
        for kind in ("reassignment", "reassignment-back"):
            path = directory / f"{moment}-{kind}.json"
            moved = json.loads(path.read_text()) if path.exists() else {"version": 1, "partitions": []}
            assert moved["version"] == 1
            for each in moved["partitions"]:
                name = f"{each['topic']}-{each['partition']}"
                before = known[name]["replicas"]
                assert sorted(each["replicas"]) == sorted(before), "no data moves"
                assert each["replicas"][0] == (leaders[name] if kind == "reassignment" else before[0])
    by_moment = {each["after_step"]: each for each in run.document["elections"]}
    assert {None if moment == "now" else 1 for moment in wanted} == by_moment.keys()
    assert by_moment[1]["after_node_id"] == run.document["steps"][0]["node_id"]
    again = snaprebuild("fleet", place / "1.json", "--metadata", place / "node1", "--elections", directory)
    assert (again.exit_code, "is not empty" in again.stderr) == (3, True)
    blind = snaprebuild("fleet", place / "1.json", "--elections", directory)
    assert (blind.exit_code, "wants --metadata" in blind.stderr) == (2, True)
    assert snaprebuild("fleet", place / "1.json", "--metadata", place / "node1", "--elections", place / "node1/x").exit_code == 3
    deep = snaprebuild("fleet", place / "1.json", "--metadata", place / "node1", "--elections", place / "node1/x/y")
    assert (deep.exit_code, (place / "node1/x").exists()) == (3, False)
    for options in ((), ("--metadata", place / "node1")):
        empty = snaprebuild("fleet", place / "1.json", *options, "--elections", "")
        assert (empty.exit_code, empty.stderr) == (2, "snaprebuild: --elections: the path is empty\n")
    assert merged(place).document["elections"] is None
