"""``cluster history`` as a user runs it: timelines against the manifests and dumps of real clusters, and charts of any width."""

import datetime
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from budgets import first_of
from command import in_json, snaprebuild
from log_dirs import cut
from manifests import CLUSTER
from terminal import in_terminal

from snaprebuild.cli.render.timeline_chart import BLOCKS, LETTERS, ChartLine, chart_text

NODE = CLUSTER / "node1"
MANIFEST = json.loads((CLUSTER / "manifest.json").read_text())
FINAL = json.loads((CLUSTER / "expected" / "image-final.json").read_text())


def dumped_records() -> list[tuple[int, str, dict[str, Any]]]:
    """Offset, type and fields of every record, as ``kafka-dump-log`` printed them."""
    text = (CLUSTER / "expected" / "node1.00000000000000000000.log.dump.txt").read_text()
    found = re.findall(r"^\| offset: (\d+) .*? payload: (\{.*\})$", text, re.MULTILINE)
    return [(int(offset), (payload := json.loads(line))["type"], payload["data"]) for offset, line in found]


def test_every_partition_of_the_cluster() -> None:
    """One entry for each record of it, epochs that count, and at the end what Kafka's image has."""
    records = dumped_records()
    for topic in {each["name"] for each in FINAL["topics"]}:
        run = in_json("cluster history", NODE, "--topic", topic)
        assert (run.exit_code, run.document["first_offset"], run.document["last_offset"]) == (0, 0, 347)
        for timeline in run.document["partitions"]:
            key = (timeline["topic_id"], timeline["partition"])
            expected = [
                offset
                for offset, kind, data in records
                if (kind.startswith("PARTITION") and (data["topicId"], data["partitionId"]) == key)
                or (kind == "REMOVE_TOPIC_RECORD" and data["topicId"] == key[0])
            ]
            entries = timeline["entries"]
            assert [each["offset"] for each in entries] == expected
            states = [each["registration"] for each in entries if each["registration"] is not None]
            assert [each["partition_epoch"] for each in states] == list(range(len(states)))
            (now,) = [each for each in FINAL["topics"] if each["name"] == topic]
            if now["topic_id"] == timeline["topic_id"]:
                (final,) = [each for each in now["partitions"] if each["partition"] == key[1]]
                assert {"partition": key[1], **states[-1]} == final
            else:
                assert (topic, entries[-1]["registration"], entries[-1]["changes"]) == ("reborn", None, ["deleted with its topic"])


def test_a_topic_that_was_created_again_is_another() -> None:
    run = in_json("cluster history", NODE, "--topic", "reborn", "--partition", "0")
    old, new = run.document["partitions"]
    assert old["topic_id"] != new["topic_id"] == "5RZ5JfslTlyQJjgTg3vKgw"
    assert old["entries"][-1]["offset"] < new["entries"][0]["offset"]
    assert new["entries"][0]["changes"] == ["created on 1,2,3, led by 1"]
    gone = in_json("cluster history", NODE, "--topic", "gone")
    assert {each["entries"][-1]["record"] for each in gone.document["partitions"]} == {"RemoveTopicRecord"}


@pytest.mark.parametrize("broker", [2, 3])
def test_registrations_of_a_broker(broker: int) -> None:
    run = in_json("cluster history", NODE, "--broker", broker)
    found = [each for each in run.document["broker"]["entries"] if each["record"] == "RegisterBrokerRecord"]
    expected = [each for each in MANIFEST["registrations_in_metadata_log"] if each["broker_id"] == broker]
    assert [(each["offset"], each["registration"]["epoch"], each["registration"]["directories"]) for each in found] == [
        (each["record_offset"], each["broker_epoch"], each["log_dirs"]) for each in expected
    ]
    replaced = [each for each in found if "disks were replaced" in " ".join(each["changes"])]
    assert [each["offset"] for each in replaced] == ([274] if broker == 2 else [])
    last = run.document["broker"]["entries"][-1]
    partitions = [each for topic in FINAL["topics"] for each in topic["partitions"]]
    assert (last["leads"], last["in_isr"]) == (0, 0)
    assert last["in_elr"] == sum(broker in each["elr"] for each in partitions)
    assert last["replicas"] == sum(broker in each["replicas"] for each in partitions)
    assert last["registration"]["fenced"]


def test_a_log_that_begins_with_a_checkpoint() -> None:
    """Node 2's does; what came before is one entry, and the rest is that of node 1."""
    short = in_json("cluster history", CLUSTER / "node2", "--topic", "orders", "--partition", "0").document
    whole = in_json("cluster history", NODE, "--topic", "orders", "--partition", "0").document
    assert short["first_offset"] == 234
    (first, *others), before = short["partitions"][0]["entries"], whole["partitions"][0]["entries"]
    assert (first["offset"], first["record"], first["changes"]) == (233, None, ["as a checkpoint has it"])
    assert first["registration"] == [each for each in before if each["offset"] < 234][-1]["registration"]
    assert others == [each for each in before if each["offset"] >= 234]


def entries(*arguments: object) -> list[dict[str, Any]]:
    run = in_json("cluster history", NODE, *arguments)
    assert run.exit_code == 0
    if run.document["broker"] is not None:
        found = run.document["broker"]["entries"]
    else:
        (found,) = (each["entries"] for each in run.document["partitions"])
    assert isinstance(found, list)
    return found


def dumped_batches() -> list[tuple[int, int]]:
    """First and last offset of each, as ``kafka-dump-log`` printed them."""
    text = (CLUSTER / "expected" / "node1.00000000000000000000.log.dump.txt").read_text()
    return [(int(first), int(last)) for first, last in re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) ", text, re.MULTILINE)]


@pytest.mark.parametrize("what", [("--topic", "shrink", "--partition", "0"), ("--broker", "2")])
def test_a_part_of_the_history(what: tuple[str, ...]) -> None:
    """Earlier changes are one entry with the state at the beginning; the rest is that of the whole history.

    Of a partition each record is an entry, so that a cut may lie inside of a batch; of a broker's counts each batch is one.
    """
    whole = entries(*what)
    cuts = [(0, 347), (95, 250), (129, 129), (130, 153), (251, 10_000), (283, 286)]
    if "--broker" in what:
        firsts, lasts = zip(*dumped_batches(), strict=True)
        cuts = [(firsts[at], lasts[-1 - at // 2]) for at in range(0, len(firsts) - 60, 40)]
    for begin, end in cuts:
        part = entries(*what, "--since", begin, "--until", end)
        inside = [each for each in whole if begin <= each["offset"] <= end]
        before = [each for each in whole if each["offset"] < begin]
        assert part[len(part) - len(inside) :] == inside
        (first,) = part[: len(part) - len(inside)] if before else (None,)
        if first is not None:
            assert (first["record"], first["changes"]) == (None, ["as it was before"])
            assert first["offset"] == begin - 1
            counts = [name for name in ("registration", "leads", "in_isr", "in_elr", "replicas") if name in first]
            assert [first[name] for name in counts] == [before[-1][name] for name in counts]


def test_a_part_of_the_history_by_time() -> None:
    """Kafka's dump has the times of batches: 12:57:17.5 is between the joins of 129 and 154."""
    what = ("--topic", "shrink", "--partition", "0")
    whole = entries(*what)
    stamp = next(each["timestamp_ms"] for each in whole if each["offset"] == 154)
    moment = datetime.datetime.fromtimestamp(stamp / 1000, datetime.UTC)
    for delta_ms, least in ((-1, 154), (0, 154), (1, 155)):
        text = (moment + datetime.timedelta(milliseconds=delta_ms)).isoformat(timespec="milliseconds")
        begun = entries(*what, "--since", text)
        assert [each["offset"] for each in begun[1:]] == [each["offset"] for each in whole if each["offset"] >= least]
        ended = entries(*what, "--until", text)
        assert [each["offset"] for each in ended] == [each["offset"] for each in whole if each["offset"] < least + (delta_ms >= 0)]
    assert entries(*what, "--since", "1971-01-01") == whole


def test_a_part_of_a_history_that_begins_with_a_checkpoint() -> None:
    what = ("--topic", "orders", "--partition", "0")
    node = CLUSTER / "node2"
    whole = in_json("cluster history", node, *what).document
    assert in_json("cluster history", node, *what, "--since", 100).document == whole
    part = in_json("cluster history", node, *what, "--since", 240).document
    assert part["first_offset"] == 240
    (first, *others), all_of_it = part["partitions"][0]["entries"], whole["partitions"][0]["entries"]
    assert first["registration"] == [each for each in all_of_it if each["offset"] < 240][-1]["registration"]
    assert others == [each for each in all_of_it if each["offset"] >= 240]
    text = snaprebuild("cluster", "history", node, *what, "--since", 240).text
    assert "from offset 240 to offset 347" in text


def test_damage_ends_the_history(tmp_path: Path) -> None:
    shutil.copytree(NODE / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    log = tmp_path / "__cluster_metadata-0" / "00000000000000000000.log"
    cut(log, 20_000)
    run = in_json("cluster history", tmp_path, "--topic", "orders", "--partition", "0")
    assert run.codes["torn-tail"] == 1
    log.write_bytes(log.read_bytes()[:15_000] + b"\0" * 40 + log.read_bytes()[15_040:])
    damaged = in_json("cluster history", tmp_path, "--topic", "orders", "--partition", "0")
    assert damaged.exit_code == 4
    kept = damaged.document["partitions"][0]["entries"]
    assert 0 < len(kept) < len(run.document["partitions"][0]["entries"])
    assert kept == run.document["partitions"][0]["entries"][: len(kept)]


# ---------------------------------------------------------------------------------------------------------------------- charts


@pytest.mark.parametrize("columns", first_of([20, 100]))
def test_a_terminal_of_any_width(columns: int) -> None:
    screen = in_terminal("cluster", "history", NODE, "--topic", "shrink", "--partition", "0", columns=columns)
    assert screen.exit_code == 0
    chart = [line for line in screen.text.splitlines() if line.startswith(" broker ")]
    assert len(chart) == 3
    assert all(len(line.rstrip()) <= columns for line in chart)
    assert all("L" not in line and "█" in line for line in chart[:1])
    plain = snaprebuild("cluster", "history", NODE, "--topic", "shrink", "--partition", "0").stdout
    assert "█" not in plain
    assert " broker 1 L" in plain


def test_a_chart_has_the_state_at_the_end_of_each_stretch() -> None:
    lines: list[ChartLine[str]] = [ChartLine("a", lambda state: state[0]), ChartLine("b", lambda state: state[1])]
    text = chart_text([(0, "xy"), (400, "X "), (410, "Xz"), (799, "..")], 800, lines, 18)
    # 0..800 ms in eight stretches of 100.
    assert text.splitlines()[:3] == [" a       xxxxXXX.", " b       yyyyzzz.", " changes 1   2  1"]


def test_no_two_states_look_alike() -> None:
    for glyphs in (BLOCKS, LETTERS):
        assert len({glyphs.leader, glyphs.in_sync, glyphs.eligible, glyphs.neither, glyphs.none}) == 5
        assert len(set(glyphs.heights)) == 9
