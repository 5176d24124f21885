"""``cluster source`` as a user runs it, and what writes: it asks for the verdict first, and refuses where a replica is rejected."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, remove_snapshots, snapshots_in, tree
from manifests import CLUSTER, FIXTURES

STALE = "old/node3-clean-stopped"
"""A cleanly stopped disk of a broker that registered again since: healthy by itself, R10 where the cluster is asked."""
METADATA = ("--metadata", CLUSTER / "node1")
AS_OF = ("--as-of", "2026-11-22")


def copy_without_snapshots(directory: str, to: Path) -> Path:
    node = Path(shutil.copytree(CLUSTER / directory, to / "node"))
    for partition in node.glob("orders-*"):
        remove_snapshots(partition)
    return node


def outcomes(run: Run) -> dict[str, tuple[str, str | None]]:
    """Outcome and rule of the partitions for which something will be written."""
    found = {each["topic_partition"]: each["verdict"] for each in run.document["partitions"]}
    return {name: (verdict["outcome"], verdict["rule"]) for name, verdict in found.items() if verdict is not None}


def written(node: Path) -> list[str]:
    return [name for name in ("orders-0", "orders-1", "orders-2") if snapshots_in(node / name)]


def test_the_document_and_the_table_say_the_same() -> None:
    arguments = (CLUSTER / "node2", "--purpose", "upload", *METADATA)
    run = in_json("cluster source", *arguments)
    assert run.exit_code == 3
    reported = {each["topic_partition"]: each for each in run.document["replicas"]}
    assert {name: each["verdict_text"] for name, each in reported.items()} == {
        **dict.fromkeys(("__transaction_state-0", "orders-0", "orders-1", "orders-2", "reborn-0", "shrink-1"), "REJECTED(R7)"),
        "single-0": "REJECTED(R8)",
    }
    orders = reported["orders-0"]
    assert (orders["node_id"], orders["log_end_offset"], orders["high_watermark"], orders["last_stable_offset"]) == (
        2,
        533,
        533,
        496,
    )
    assert orders["metadata_log"] == {
        "path": str(CLUSTER / "node1" / "__cluster_metadata-0"),
        "is_own": False,
        "offset": 347,
        "proven_below": 315,
        "proof_text": "proven committed below 315, by its newest checkpoint; the rest is what this node holds",
        "unknown_contents": None,
    }
    assert [each["rule"] for each in orders["rules"]] == [f"R{number}" for number in range(1, 14)]
    table = snaprebuild("cluster", "source", *arguments)
    assert table.exit_code == 3
    lines = [" ".join(line.split()) for line in table.stdout.splitlines()]
    for name, each in reported.items():
        (line,) = [line for line in lines if f"/{name} " in line]
        assert f" {each['verdict_text']} {each['verdict']['rule']} " in line
    assert lines[0].startswith("7 replicas as a source for uploads: 7 REJECTED. 7 findings: ")


def test_a_healthy_broker_and_one_of_before_kraft() -> None:
    run = in_json("cluster source", CLUSTER / "node1", "--topic", "orders", "--purpose", "upload")
    assert (run.exit_code, {each["metadata_log"]["is_own"] for each in run.document["replicas"]}) == (0, {True})
    (node_1,) = in_json("cluster source", CLUSTER / "node1" / "orders-0", "--broker-epoch", 14).document["replicas"]
    assert node_1["verdict_text"] == "REJECTED(R10)"
    table = snaprebuild(
        "cluster", "source", FIXTURES / "kafka27-mixed" / "logs", "--topic", "mixed", "--purpose", "upload", "--i-am-the-leader"
    )
    assert table.exit_code == 0
    assert "TRUSTED_BELOW(6913)" in table.stdout, "the last stable offset, by Kafka's own classes"
    assert "the operator asserts that it leads (--i-am-the-leader)" in table.text
    assert "no metadata log was given (--metadata), and there is none next to the partition" in table.text


def test_the_configuration_of_a_broker_names_its_directories(tmp_path: Path) -> None:
    """In its format, with a log directory that is offline, and a metadata log next to them."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={CLUSTER / 'node1'},{tmp_path / 'gone'}\nmetadata.log.dir={CLUSTER / 'node3'}\n")
    run = in_json("cluster source", "--server-properties", properties, "--topic", "orders")
    assert (run.exit_code, run.document["server_properties"]) == (5, str(properties))
    assert (run.codes["offline-log-dir"], run.codes["source-metadata-dir"]) == (1, 1)
    assert {each["verdict_text"] for each in run.document["replicas"]} == {"TRUSTED"}
    assert {each["metadata_log"]["path"] for each in run.document["replicas"]} == {str(CLUSTER / "node3" / "__cluster_metadata-0")}


def test_what_rests_on_the_operators_word_goes_up_with_it_alone(tmp_path: Path) -> None:
    """No metadata log of a time before KRaft shows that the replica leads or is in sync, nor does one that ends before the broker
    registered."""
    logs, store = FIXTURES / "kafka27-mixed" / "logs", tmp_path / "store"
    reported = "R3, R4, R5, R6, R7, R8, R10 have nothing to judge ("
    mixed = ("tier upload", store, logs, "--topic-partition", "mixed-0", "--topic-id", "mixed=pnG54XS0SyKCbPV6BzO-OQ", *AS_OF)
    for options in ((), ("--dry-run",)):
        run = in_json(*mixed, *options)
        assert (run.exit_code, run.codes["source-word-needed"], store.exists()) == (3, 1, False)
        assert reported in run.messages("source-word-needed")
        assert [each["action"] for each in run.partition("mixed-0")["segments"][:2]] == ["refused", "held-back"]
    asked = in_json("cluster source", logs, "--topic", "mixed", "--purpose", "upload")
    assert (asked.exit_code, reported in asked.messages("source-word-needed")) == (1, True)
    assert in_json("cluster source", logs, "--topic", "mixed").exit_code == 0, "a rebuild describes local bytes"
    run = in_json(*mixed, "--i-am-the-leader")
    assert (run.exit_code, run.partition("mixed-0")["totals"]["uploaded"]) == (0, 12)
    assert len(run.partition("mixed-0")["verdict"]["asserted_by_operator"]) == 1


# ---------------------------------------------------------------------------------------------------------------- the gate


@pytest.mark.parametrize("verb", ["plan", "rebuild", "before-start"])
def test_a_rejected_replica_is_not_written_to(tmp_path: Path, verb: str) -> None:
    """Its own metadata log knows nothing of the later registration: with it the snapshots are written."""
    node = copy_without_snapshots(STALE, tmp_path)
    before = tree(node)
    receipt = () if verb == "plan" else ("--receipt", tmp_path / "receipt.jsonl")
    run = in_json(verb, node, *METADATA, *receipt)
    assert (run.exit_code, tree(node)) == (3, before)
    assert outcomes(run) == dict.fromkeys(("orders-0", "orders-1", "orders-2"), ("REJECTED", "R10"))
    assert run.codes["source-rejected"] == 3
    assert "marker has broker epoch 10, the registration 233" in run.messages("source-rejected")
    own = in_json(verb, node, *receipt)
    assert own.exit_code == 0
    assert outcomes(own) == dict.fromkeys(("orders-0", "orders-1", "orders-2"), ("TRUSTED", None))
    assert bool(written(node)) == (verb != "plan")


@pytest.mark.parametrize("has_something_due", [True, False])
def test_a_rejected_partition_keeps_its_left_over_names(tmp_path: Path, has_something_due: bool) -> None:
    """A run that was killed left them. One of a partition that the gate refuses stays, also if nothing lacks there."""
    node = Path(shutil.copytree(CLUSTER / STALE, tmp_path / "node"))
    directory = node / "orders-0"
    whole = sorted(directory.glob("*.snapshot"))
    left = whole[-2].with_name(f"{whole[-2].name}.tmp")
    left.hardlink_to(whole[-2])
    if has_something_due:
        whole[0].unlink()
    before = tree(node)
    selected = ("--topic", "orders", "--partition", "0", "--receipt", tmp_path / "receipt.jsonl")
    run = in_json("rebuild", node, *METADATA, *selected)
    assert (run.exit_code, tree(node)) == (3 if has_something_due else 0, before)
    assert in_json("rebuild", node, *selected).exit_code == 0
    assert not left.exists(), "with its own metadata log alone the replica is trusted"


def test_a_wrong_snapshot_above_the_trusted_offset_is_reported_and_stays(tmp_path: Path) -> None:
    """It is compared, and nothing else takes its place, whatever was asked for; one below is replaced."""
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node"))
    (node / ".kafka_cleanshutdown").unlink()
    marks = node / "replication-offset-checkpoint"
    marks.write_text(marks.read_text().replace("orders 0 533", "orders 0 300"))
    for offset in (258, 411):
        (node / "orders-0" / f"{offset:020d}.snapshot").write_bytes(EMPTY_SNAPSHOT)
    (node / "orders-0" / f"{330:020d}.snapshot").unlink()
    receipt = ("--receipt", tmp_path / "receipt.jsonl")
    run = in_json("rebuild", node, "--topic", "orders", "--partition", "0", "--set-aside", *receipt, *AS_OF)
    reported = run.partition("orders-0")
    actions = {each["offset"]: each["action"] for each in reported["boundaries"]}
    assert (run.exit_code, reported["verdict"]["trusted_below"]) == (1, 258)
    assert (actions[258], actions[411]) == ("written", "refused")
    assert {each["offset"] for each in reported["not_planned"]} >= {330}
    assert "wrong, and not replaced: nothing above offset 258 is trusted: " in run.messages("wrong-snapshot")
    assert (node / "orders-0" / f"{411:020d}.snapshot").read_bytes() == EMPTY_SNAPSHOT
    assert not (node / "orders-0" / f"{330:020d}.snapshot").exists()


def test_a_broker_is_not_called_prepared_where_snapshots_are_refused(tmp_path: Path) -> None:
    """Between the high watermark and the recovery point a broker makes none, and none is written: its uploads stay blocked."""
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node"))
    (node / ".kafka_cleanshutdown").unlink()
    remove_snapshots(node / "orders-0")
    marks = node / "replication-offset-checkpoint"
    marks.write_text(marks.read_text().replace("orders 0 533", "orders 0 300"))
    run = in_json("before-start", node, "--topic", "orders", "--receipt", tmp_path / "receipt.jsonl")
    reported = run.partition("orders-0")
    assert (run.exit_code, reported["state"], reported["totals"]["written"]) == (1, "partly", 3)
    behind = [path.stat().st_size for path in (node / "orders-0").glob("*.log") if 258 <= int(path.stem) < 501]
    assert reported["totals"]["blocked_bytes_left"] == sum(behind)
    assert {each["offset"] for each in run.document["findings"] if each["code"] == "not-known-to-be-due"} == {330, 411, 501}


def test_elsewhere_the_verdict_is_only_reported(tmp_path: Path) -> None:
    node = copy_without_snapshots(STALE, tmp_path)
    before = tree(node)
    run = in_json("rebuild", node, *METADATA, *AS_OF, "--out", tmp_path / "out")
    assert (run.exit_code, tree(node)) == (0, before)
    assert set(outcomes(run).values()) == {("REJECTED", "R10")}
    assert {each["severity"] for each in run.document["findings"] if each["code"] == "source-rejected"} == {"note"}
    assert set(written(tmp_path / "out")) == {"orders-0", "orders-1", "orders-2"}


def test_one_rejected_partition_ends_no_other(tmp_path: Path) -> None:
    """A topic that was made again since is refused, the others of the broker are written; a saved plan carries the metadata log."""
    node = copy_without_snapshots("node1", tmp_path)
    (node / "orders-1" / "partition.metadata").write_text("version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")
    saved = tmp_path / "plan.jsonl"
    assert in_json("plan", node, *METADATA, *AS_OF, "--save", saved).exit_code == 3
    assert json.loads(saved.read_text().splitlines()[0])["request"]["metadata"] == str(CLUSTER / "node1")
    run = in_json("rebuild", "--plan", saved, "--receipt", tmp_path / "receipt.jsonl")
    assert (run.exit_code, written(node)) == (3, ["orders-0", "orders-2"])
    assert outcomes(run) == {"orders-0": ("TRUSTED", None), "orders-1": ("REJECTED", "R5"), "orders-2": ("TRUSTED", None)}


def test_a_metadata_log_that_was_named_and_is_damaged_ends_the_command(tmp_path: Path) -> None:
    node = Path(shutil.copytree(CLUSTER / "node1" / "__cluster_metadata-0", tmp_path / "damaged"))
    for path in node.iterdir():
        if path.suffix in (".checkpoint", ".log"):
            path.write_bytes(b"\0" * 100 + path.read_bytes()[100:])
    for verb in (("cluster", "source"), ("rebuild",)):
        run = snaprebuild(*verb, CLUSTER / "node1", "--metadata", node)
        assert (run.exit_code, "the metadata log cannot be read, so no replica is judged" in run.stderr) == (3, True), run.stderr


def test_no_rejected_replica_goes_up(tmp_path: Path) -> None:
    store = tmp_path / "store"
    for directory, options, rule in ((STALE, METADATA, "R10"), ("node2", (), "R7")):
        run = in_json("tier upload", store, CLUSTER / directory, "--topic-partition", "orders-0", *options, *AS_OF)
        assert (run.exit_code, store.exists()) == (3, False)
        reported = run.partition("orders-0")
        assert (reported["verdict"]["outcome"], reported["verdict"]["rule"], reported["segments"][0]["action"]) == (
            "REJECTED",
            rule,
            "refused",
        )
        assert run.codes["source-rejected"] == 1
    run = in_json("tier upload", store, CLUSTER / "node1", "--topic-partition", "orders-0", *AS_OF)
    reported = run.partition("orders-0")
    assert (run.exit_code, reported["verdict"]["outcome"], reported["totals"]["uploaded"]) == (0, "TRUSTED_BELOW", 5)
    assert (reported["node_id"], reported["directory_id"], reported["broker_epoch"]) == (1, "vbgXJ_mX3w2WzAJjsPWbwQ", 15)
    (claim, *_) = [json.loads(path.read_text()) for path in store.rglob("*.json")]
    assert (claim["node_id"], claim["directory_id"], claim["broker_epoch"]) == (1, "vbgXJ_mX3w2WzAJjsPWbwQ", 15)


def test_voters_are_asked_for_by_an_upload(tmp_path: Path) -> None:
    """With one other voter a majority holds all of the log."""
    upload = ("tier upload", tmp_path / "store", CLUSTER / "node1", "--topic-partition", "orders-0", "--dry-run", *AS_OF)
    run = in_json(*upload, "--voter", CLUSTER / "node2")
    assert (run.exit_code, run.document["voters"]) == (0, [str(CLUSTER / "node2")])
    assert "proven committed below 348, its end" in run.messages("source-metadata-proof")


def test_an_upload_is_compared_with_peers(tmp_path: Path) -> None:
    """Its leader epochs are those of no other replica: alone no one can tell."""
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node"))
    (node / "orders-1" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 300\n")
    orders = ("tier upload", tmp_path / "store", node, "--topic-partition", "orders-1", "--dry-run", *AS_OF)
    assert in_json(*orders).partition("orders-1")["verdict"]["outcome"] == "TRUSTED_BELOW"
    run = in_json(*orders, "--peer", CLUSTER / "node3")
    assert (run.exit_code, run.document["peers"]) == (3, [str(CLUSTER / "node3")])
    assert run.partition("orders-1")["verdict"]["rule"] == "R12"
    assert "leader epoch 1 begins at 300 here and at 292 there" in run.messages("source-rejected")


def test_an_upload_after_an_unclean_stop_waits_above_the_recovery_point(tmp_path: Path) -> None:
    node = Path(shutil.copytree(CLUSTER / "node1", tmp_path / "node"))
    (node / ".kafka_cleanshutdown").unlink()
    points = node / "recovery-point-offset-checkpoint"
    points.write_text(points.read_text().replace("orders 0 533", "orders 0 258"))
    upload = ("tier upload", tmp_path / "store", node, "--topic-partition", "orders-0", *AS_OF)
    for options in ((), ("--i-am-the-leader",)):
        refused = in_json(*upload, *options)
        assert (refused.exit_code, (tmp_path / "store").exists()) == (3, False)
        assert refused.partition("orders-0")["verdict"]["unknown_rules"] == ["R10"]
    run = in_json(*upload, "--accept-own-log")
    assert run.exit_code == 0
    segments: list[dict[str, Any]] = run.partition("orders-0")["segments"]
    assert [(each["end_offset"], each["action"]) for each in segments] == [
        *((end, "uploaded") for end in (90, 178, 257)),
        (329, "waits"),
        *((end, "held-back") for end in (410, 500)),
    ]
    assert "above-trusted-offset" in run.messages("tier-upload-waits")


FOLLOWER = FIXTURES / "follower-lost-state"


def test_a_replica_is_made_for_one_of_the_replicas_only(tmp_path: Path) -> None:
    """``follower build`` asks the metadata log of the broker that gets the directory."""
    node = Path(shutil.copytree(FOLLOWER / "node2", tmp_path / "node2"))
    shutil.rmtree(node / "payments-0")
    arguments = (FOLLOWER / "remote", node, "--topic-partition", "payments-0", "--metadata-log", FOLLOWER / "node1", *AS_OF)
    run = in_json("follower build", *arguments, "--dry-run")
    assert run.exit_code == 0
    assert run.document["verdict"]["outcome"] == "TRUSTED"
    meta = node / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=2", "node.id=3"))
    for options in ((), ("--dry-run",)):
        refused = snaprebuild("follower", "build", *arguments, *options)
        assert (refused.exit_code, (node / "payments-0").exists()) == (3, False)
        assert "no source for another replica, REJECTED(R3): node 3 is not registered" in refused.stderr
    meta.unlink()
    refused = snaprebuild("follower", "build", *arguments, "--dry-run")
    assert (refused.exit_code, "REJECTED(R2): there is no meta.properties" in refused.stderr) == (3, True), refused.stderr
