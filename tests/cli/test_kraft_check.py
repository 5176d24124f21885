"""``cluster check`` and ``cluster advise`` as a user runs them; what Kafka itself does there is asked in tests/broker."""

from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import flip, tree
from manifests import FIXTURES, REPOSITORY
from metadata_dirs import BROKEN, BUNDLED, checkpoint_name, metadata_copy, remove

from snaprebuild.cluster.quorum.check import CODES
from snaprebuild.cluster.quorum.rules import QuorumRule

NODES = [BUNDLED[f"node{number}"] for number in (1, 2, 3)]


def test_three_nodes() -> None:
    before = tree(FIXTURES / "kraft-cluster3")
    run = in_json("cluster check", *NODES)
    assert run.exit_code == 0
    assert run.codes == {"metadata-left-overs": 1, "nodes-disagree": 1}
    one, two, three = run.document["nodes"]
    assert [each["is_leader"] for each in run.document["nodes"]] == [True, False, False]
    assert [each["node_id"] for each in run.document["nodes"]] == [1, 2, 3]
    assert (one["start"], two["start"]) == ({"offset": 0, "epoch": 0}, {"offset": 234, "epoch": 4})
    assert {each["end_offset"] for each in (one, two, three)} == {348}
    for each in (one, two, three):
        assert list(dict.fromkeys(result["rule"] for result in each["rules"])) == [rule.name for rule in QuorumRule]
        assert {result["text"] for result in each["rules"]} == {rule.value for rule in QuorumRule}
    assert in_json("cluster check", *NODES, "--start-rule", "strict").exit_code == 1
    assert in_json("cluster check", *NODES, "--start-rule", "literal", "--leader", NODES[1]).exit_code == 0, (
        "nobody is above that one"
    )
    assert tree(FIXTURES / "kraft-cluster3") == before


def test_the_table() -> None:
    run = snaprebuild("cluster", "check", FIXTURES / "kraft-metadata-moved")
    assert (run.exit_code, run.stderr) == (0, "")
    assert "640 (epoch 4)" in run.stdout
    assert "812 (epoch 4)" in run.stdout
    assert run.stdout.splitlines()[0] == "1 node: 17 rules held; 1 info."


def test_a_broken_one_is_reported_with_its_rule(tmp_path: Path) -> None:
    (directory,) = BROKEN["K8"](tmp_path)
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (4, {"bad-checkpoint": 1})
    assert run.messages("bad-checkpoint").startswith(f"{directory / checkpoint_name(484, 3)}: K8: byte ")
    reported = snaprebuild("cluster", "check", directory)
    assert "damaged: " in reported.stderr
    assert "(bad-checkpoint)" in reported.stderr


def test_every_rule_has_a_documented_finding() -> None:
    assert list(CODES) == list(QuorumRule)
    page = (REPOSITORY / "docs" / "reference" / "findings.md").read_text()
    guide = (REPOSITORY / "docs" / "reference" / "cluster-rules.md").read_text()
    for rule, code in CODES.items():
        assert f"| `{code}` |" in page
        assert f"| {rule.name} | {rule.value} |" in guide


def test_damage_of_the_log_is_reported_and_the_rest_is_judged(tmp_path: Path) -> None:
    """A flipped bit in the middle segment, below the latest checkpoint: Kafka cuts the log there (tests/broker)."""
    directory = metadata_copy("kraft-metadata", tmp_path)
    path = directory / f"{171:020d}.log"
    flip(path, 5000)
    run = in_json("cluster check", directory)
    assert (run.exit_code, run.codes) == (4, {"damaged-file": 1, "metadata-gap": 1})
    assert "cuts the log there, and begins anew at its latest checkpoint, 484; later records are lost" in run.messages(
        "metadata-gap"
    )
    assert run.document["nodes"][0]["end_offset"] == 531


MOVED = FIXTURES / "kraft-metadata-moved"
NOW = ("--as-of", "2026-11-21T14:00:00Z")
"""Hours after the records: nothing is old."""


def starts(run: Run) -> dict[str, int | None]:
    """Start offset of each policy, None where it stays."""
    return {each["policy"]: each["start"]["offset"] if each["moves"] else None for each in run.document["policies"]}


def policy(run: Run, name: str) -> dict[str, Any]:
    (found,) = [each for each in run.document["policies"] if each["policy"] == name]
    assert isinstance(found, dict)
    return found


def test_the_moved_log() -> None:
    """Segments of 12,281 and 6,366 bytes; checkpoints of 5,205 bytes at 640 and every 20 up to 760, and of 5,565 at 812."""
    before = tree(MOVED)
    assumed = ("max_retention_bytes=50000", "replica=2:705", "listener=broker:817")
    run = in_json("cluster advise", MOVED, *NOW, *(word for each in assumed for word in ("--assume", each)))
    assert run.exit_code == 0
    assert run.document["start"] == {"offset": 640, "epoch": 4}
    assert run.document["size_bytes"] == 12281 + 6366 + 7 * 5205 + 5565
    # 60,647 bytes; without three checkpoints 45,032. The first segment goes when the start is 720 or above.
    assert starts(run) == {"immediate": 812, "retention": 700, "kafka-14932": 700}
    assert [len(each["moves"]) for each in run.document["policies"]] == [1, 3, 1]
    assert policy(run, "immediate")["moves"][0]["deleted_segments"] == [538]
    assert policy(run, "immediate")["size_bytes"] == 6366 + 5565
    assert policy(run, "immediate")["invalidated"] == ["2"]
    assert policy(run, "retention")["size_bytes"] == 12281 + 6366 + 4 * 5205 + 5565
    assert policy(run, "kafka-14932")["invalidated"] == policy(run, "kafka-14932")["reloaded"] == []
    assert run.document["unknown_replicas"] == [], "it is the only node of its cluster"
    assert tree(MOVED) == before


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((*NOW, "--assume", "replica=2:650", "--assume", "lag_time_max_ms=1000"), 812),
        (("--as-of", "2026-12-25", "--assume", "max_retention_ms=-1"), 812),
        ((*NOW, "--assume", "listener=controller:760"), 760),
    ],
)
def test_settings_and_readers(arguments: tuple[str, ...], expected: int) -> None:
    found = starts(in_json("cluster advise", MOVED, *arguments))
    assert found == {"immediate": 812, "retention": None, "kafka-14932": expected}


PROPERTIES = """
process.roles=broker,controller
log.dirs={log_dirs}
metadata.max.retention.bytes = 50000
metadata.log.max.snapshot.interval.ms=0
metadata.log.max.record.bytes.between.snapshots=1000
"""


def configured(to: Path, text: str = PROPERTIES, log_dirs: str = f"{MOVED / 'logs'},/nowhere") -> Path:
    path = to / "server.properties"
    path.write_text(text.format(log_dirs=log_dirs))
    return path


def test_the_configuration_of_the_node(tmp_path: Path) -> None:
    """Its retention, its checkpoints, and its log: ``metadata.log.dir``, else the first of ``log.dirs``. Options and DIR come first."""
    path = configured(tmp_path)
    run = in_json("cluster advise", "--server-properties", path, *NOW)
    assert Path(run.document["path"]) == MOVED / "logs" / "__cluster_metadata-0"
    assert [run.document[name] for name in ("retention_bytes", "retention_ms")] == [50000, 604_800_000]
    assert [run.document[name] for name in ("checkpoint_interval_ms", "checkpoint_record_bytes")] == [0, 1000]
    assert starts(run)["retention"] == 700
    reported = in_json("cluster advise", "--server-properties", path, "--assume", "max_retention_bytes=-1", *NOW)
    assert starts(reported)["retention"] is None
    elsewhere = in_json("cluster advise", BUNDLED["node1"], "--server-properties", path, *NOW)
    assert (elsewhere.document["node_id"], elsewhere.document["end_offset"]) == (1, 348)
    path = configured(tmp_path, PROPERTIES + f"metadata.log.dir={BUNDLED['node3']}\nmetadata.max.retention.bytes=-7\n")
    own = in_json("cluster advise", "--server-properties", path, *NOW)
    assert (own.document["node_id"], own.document["retention_bytes"], starts(own)["retention"]) == (3, -1, None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--assume", "leader_start=200:4"), 195),
        (("--assume", "leader_start=200:4", "--followers", "literal"), 200),
        (("--assume", "leader_start=200:4", "--assume", "listener=broker:199"), None),
    ],
)
def test_a_follower_asks_where_its_leader_is(arguments: tuple[str, ...], expected: int | None) -> None:
    """Its own checkpoints are at 76, 195 and 304."""
    run = in_json("cluster advise", BUNDLED["node3"], *arguments, *NOW)
    assert not run.document["is_leader"]
    assert starts(run)["kafka-14932"] == expected
    assert (policy(run, "kafka-14932")["stays_because"] is None) == (expected is not None)


@pytest.mark.parametrize(
    ("lines", "as_of", "is_due"),
    [
        # Batches of 87 and four times 72 bytes are after the checkpoint at 812, taken within the last minute.
        ("", "2026-11-21T11:35:00Z", False),
        ("metadata.log.max.record.bytes.between.snapshots=375", "2026-11-21T11:35:00Z", True),
        ("metadata.log.max.record.bytes.between.snapshots=376", "2026-11-21T11:35:00Z", False),
        ("", "2026-11-21T14:00:00Z", True),
        ("metadata.log.max.snapshot.interval.ms=0", "2026-11-21T14:00:00Z", False),
    ],
)
def test_when_the_next_checkpoint_is_due(tmp_path: Path, lines: str, as_of: str, is_due: bool) -> None:
    path = configured(tmp_path, "log.dirs={log_dirs}\n" + lines)
    run = in_json("cluster advise", "--server-properties", path, "--as-of", as_of)
    assert run.document["next_checkpoint"]["record_bytes"] == 375
    assert run.document["next_checkpoint"]["is_due"] == is_due


def test_other_nodes_report_what_they_have_fetched() -> None:
    leader, *others = (BUNDLED[f"node{number}"] for number in (1, 2, 3))
    run = in_json("cluster advise", leader, *others, *NOW)
    assert run.document["is_leader"]
    assert run.document["replicas"] == [{"name": "2", "offset": 348}, {"name": "3", "offset": 348}]
    assert run.document["unknown_replicas"] == []
    assert starts(run) == {"immediate": 315, "retention": None, "kafka-14932": 315}
    alone = in_json("cluster advise", leader, *NOW)
    assert alone.document["unknown_replicas"] == [2, 3]
    assert any("how far 2 replicas got is not known: 2, 3" in each for each in alone.document["assumptions"])
    reported = in_json("cluster advise", leader, *others, "--assume", "replica=3:240", *NOW)
    assert starts(reported)["kafka-14932"] == 234
    assert policy(reported, "immediate")["invalidated"] == ["3"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("metadata.max.retention.bytes=100MB", "metadata.max.retention.bytes: expected a number from -9223372036854775808 to"),
        ("metadata.log.max.snapshot.interval.ms=-1", "metadata.log.max.snapshot.interval.ms: expected a number from 0 to"),
        ("metadata.log.max.record.bytes.between.snapshots=0", "between.snapshots: expected a number from 1 to"),
        ("metadata.log.dir=/nowhere/at/all", "/nowhere/at/all"),
    ],
)
def test_what_kafka_refuses_in_a_configuration(tmp_path: Path, line: str, said: str) -> None:
    run = snaprebuild("cluster", "advise", "--server-properties", configured(tmp_path, "log.dirs={log_dirs}\n" + line))
    assert (run.exit_code, run.stdout) == (2, "")
    assert said in run.stderr


def test_the_chart() -> None:
    run = snaprebuild("cluster", "advise", MOVED, *NOW, "--assume", "replica=2:705")
    lines = {line.split()[0]: line for line in run.stdout.splitlines() if line.startswith(" ") and "█" in line}
    assert list(lines) == ["now", "immediate", "retention", "kafka-14932"]
    assert len({len(line) for line in lines.values()}) == 1
    kept = {name: line.count("█") for name, line in lines.items()}
    assert kept["immediate"] < kept["kafka-14932"] < kept["now"] == kept["retention"]


def test_damage_is_reported_next_to_the_advice(tmp_path: Path) -> None:
    (directory,) = BROKEN["K8"](tmp_path)
    run = in_json("cluster advise", directory, *NOW)
    assert (run.exit_code, run.codes) == (4, {"bad-checkpoint": 1})


def test_where_no_checkpoint_is_there(tmp_path: Path) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    remove(directory, "*.checkpoint")
    run = in_json("cluster advise", directory, *NOW)
    assert set(starts(run).values()) == {None}
    assert {each["stays_because"] for each in run.document["policies"]} == {"no checkpoint ends above it"}
