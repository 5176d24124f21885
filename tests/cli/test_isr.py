"""``simulate isr``, ``cluster isr`` and ``simulate metadata-log`` as a user runs them."""

from pathlib import Path

import pytest
from command import in_json, snaprebuild
from manifests import CLUSTER, FIXTURES, REPOSITORY
from metadata_dirs import metadata_copy
from sentences import NOT_PROVEN

from snaprebuild.simulations.isr.scenarios import SCENARIOS


def test_the_overview() -> None:
    run = in_json("simulate isr")
    assert run.exit_code == 1
    lost = {(each["scenario"], each["mode"]): [loss["cause"] for loss in each["losses"]] for each in run.document["scenarios"]}
    assert len(lost) == 4 * len(SCENARIOS)
    assert (lost["race", "no-epochs"], lost["race", "kip-903"]) == (["stale-epoch"], [])
    text = snaprebuild("simulate", "isr").stdout
    (line,) = [line for line in text.splitlines() if line.startswith(" race ")]
    assert line.split()[1:5] == ["LOST", "nothing", "nothing", "nothing"]


def test_a_scenario_step_by_step() -> None:
    run = snaprebuild("simulate", "isr", "race")
    assert run.exit_code == 1
    assert "(isr-loss)" in run.stderr
    assert "the controller refuses it with INELIGIBLE_REPLICA: broker 2 has broker epoch 11, not 2" in run.text
    assert "LOST: record 1, committed, which broker 2 does not have" in run.text
    before, after = in_json("simulate isr", "race").document["scenarios"]
    assert (before["mode"], after["mode"]) == ("no-epochs", "kip-903")
    assert [step["step"] for step in before["steps"]] == [str(step) for step in SCENARIOS["race"].steps]
    assert before["losses"][0]["records"] == [1]


@pytest.mark.parametrize(
    ("arguments", "exit_code", "codes"),
    [
        (("race", "--epoch-mode", "no-epochs"), 1, ["isr-loss"]),
        (("last-member",), 0, ["isr-loss-accepted", "isr-loss-accepted"]),
        (("no-epoch-in-fetch",), 1, ["isr-loss", "isr-step-left-out", "isr-loss"]),
        (("third-in-sync", "--min-insync", "3", "--epoch-mode", "no-epochs"), 1, ["isr-loss"]),
        (("--search", "--runs", "40", "--random-seed", "3", "--epoch-mode", "kip-903"), 0, ["isr-loss-accepted"]),
    ],
)
def test_a_loss_is_a_finding(arguments: tuple[str, ...], exit_code: int, codes: list[str]) -> None:
    """One that the KIP accepts is a note, and the modes that were played decide."""
    run = in_json("simulate isr", *arguments)
    assert (run.exit_code, [each["code"] for each in run.document["findings"]]) == (exit_code, codes)


def test_the_messages_of_each_step() -> None:
    """KIP-903: version 3 of AlterPartition names the epoch with which broker 2 fetched, version 2 names brokers only."""
    arguments = ("race", "--show-messages", "--epoch-mode")
    assert "broker 1 to controller: AlterPartitionRequest version 3" in snaprebuild("simulate", "isr", *arguments, "kip-903").text
    proposed = {}
    for mode in ("no-epochs", "kip-903"):
        (played,) = in_json("simulate isr", *arguments, mode).document["scenarios"]
        sent = [message for step in played["steps"] for message in step["messages"]]
        requests = [each for each in sent if each["name"] == "AlterPartitionRequest"]
        proposed[mode] = [each["body"]["topics"][0]["partitions"][0] for each in requests]
        versions = {each["name"]: each["version"] for each in sent}
        expected = (2, 14) if mode == "no-epochs" else (3, 15)
        assert (versions["AlterPartitionResponse"], versions["FetchResponse"]) == expected
    assert proposed["no-epochs"][-1]["newIsr"] == [1, 2]
    assert proposed["kip-903"][1]["newIsrWithEpochs"] == [
        {"brokerId": 1, "brokerEpoch": 1},
        {"brokerId": 2, "brokerEpoch": 2},
    ]


def test_a_scenario_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "steps.txt"
    path.write_text("produce 1  # a record\nfetch 2\nfetch 3\nunfence 1\n")
    (played,) = in_json("simulate isr", "--scenario", path, "--epoch-mode", "kip-903").document["scenarios"]
    assert [step["committed"] for step in played["steps"]] == [0, 0, 1, 1]
    assert [step["happened"] for step in played["steps"]] == [True, True, True, False]


@pytest.mark.full
def test_a_search() -> None:
    arguments = ("--search", "--runs", 60, "--random-seed", 3, "--epoch-mode", "kip-903")
    (found,) = in_json("simulate isr", *arguments).document["searches"]
    assert found["losses"]["stale-epoch"] == found["losses"]["other"] == 0
    (shortest,) = found["shortest"]
    assert shortest["loss"]["is_accepted"]
    text = snaprebuild("simulate", "isr", *map(str, arguments)).stdout
    assert "\n".join(f"    {step}" for step in shortest["steps"]) in text


def test_a_bad_scenario(tmp_path: Path) -> None:
    path = tmp_path / "steps.txt"
    path.write_text("produce 1\nfly 2\n")
    run = snaprebuild("simulate", "isr", "--scenario", path)
    assert (run.exit_code, "step 2, fly 2: expected VERB BROKER" in run.stderr) == (2, True)


def test_check() -> None:
    """The findings and their proof are tested in tests/cluster/test_metadata_isr_check.py."""
    run = in_json("cluster isr", CLUSTER / "node2")
    assert run.exit_code == 1
    assert run.document["totals"] == {"new-disk": 7, "elected-new-disk": 1}
    assert run.document["first_offset"] == 234
    text = snaprebuild("cluster", "isr", CLUSTER / "node2")
    assert "offsets 234 to 347, from a checkpoint, before which nothing is known" in text.text
    assert "(isr-elected-new-disk)" in text.stderr
    healthy = in_json("cluster isr", FIXTURES / "kraft-metadata-moved" / "logs")
    assert (healthy.exit_code, healthy.document["events"]) == (0, [])


def test_a_log_that_has_a_checkpoint_alone_has_no_offsets(tmp_path: Path) -> None:
    """Each command that names first and last offset of a metadata log; a range that ends before it begins is none."""
    directory = metadata_copy("kraft-metadata-moved", tmp_path)
    for path in directory.iterdir():
        if path.name != "00000000000000000640-0000000004.checkpoint":
            path.unlink()
    (directory / "00000000000000000640.log").touch()
    checked = snaprebuild("cluster", "isr", directory)
    assert "no offsets, from a checkpoint, before which nothing is known" in checked.text
    history = snaprebuild("cluster", "history", directory, "--broker", 1)
    assert "1 entry, from a checkpoint of everything below offset 640\n" in history.stdout
    unknown = snaprebuild("cluster", "history", directory, "--topic", "x")
    assert "nothing below offset 640 mentions x" in unknown.stderr
    for run in (checked, history, unknown, snaprebuild("cluster", "image", directory)):
        assert "640 to 639" not in f"{run.text} {run.stderr}"


def test_check_with_the_logs_of_other_voters() -> None:
    voters = [each for node in ("node1", "node3") for each in ("--voter", CLUSTER / node)]
    run = in_json("cluster isr", CLUSTER / "node2", *voters)
    assert ({each["is_proven"] for each in run.document["events"]}, run.document["proven_end_offset"]) == ({True}, 348)
    text = snaprebuild("cluster", "isr", CLUSTER / "node2")
    assert f"offsets from 315 on, marked with a star, are {NOT_PROVEN}: 1 of 3 voters" in text.text
    text = snaprebuild("cluster", "isr", CLUSTER / "node2", *map(str, voters))
    assert "all of it is proven to be committed" in text.stdout


EXAMPLE = REPOSITORY / "docs" / "examples" / "metadata-log.toml"
POLICIES = ["immediate", "retention", "kafka-14932"]


@pytest.mark.full
def test_the_example() -> None:
    """Two no-op records a second for ten days, and 50 a minute for one. The policies: tests/simulations/test_log_start_simulation.py."""
    run = in_json("simulate metadata-log", EXAMPLE)
    assert run.exit_code == 0
    assert [each["policy"] for each in run.document["policies"]] == POLICIES
    assert {each["end_offset"] for each in run.document["policies"]} == {10 * 86_400 * 2 + 1440 * 50}


def test_one_policy() -> None:
    run = in_json("simulate metadata-log", EXAMPLE, "--policy", "retention", "--followers", "literal")
    assert [each["policy"] for each in run.document["policies"]] == ["retention"]
    assert run.document["followers"] == "literal"


@pytest.mark.full
def test_the_table_has_a_chart() -> None:
    run = snaprebuild("simulate", "metadata-log", EXAMPLE)
    assert (run.exit_code, run.stderr) == (0, "")
    lines = [line.split(maxsplit=1) for line in run.stdout.splitlines() if set("▁▂▃▄▅▆▇█") & set(line)]
    assert [line[0] for line in lines] == ["log", *POLICIES, *POLICIES]
    assert all(len(line[1].removeprefix("end").strip()) == 60 for line in lines)


def test_a_scenario_in_which_nothing_happens(tmp_path: Path) -> None:
    path = tmp_path / "idle.toml"
    path.write_text('duration = "1h"\n')
    run = in_json("simulate metadata-log", path)
    assert [(each["end_offset"], each["move_count"]) for each in run.document["policies"]] == [(0, 0)] * 3
    assert snaprebuild("simulate", "metadata-log", path).exit_code == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('duration = "1h"\n[[append]]\nevery = "x"\n', "append[0].every: expected a time"),
        ("\x00", "is binary data, not a scenario of `simulate metadata-log`"),
        ("= 1", "is not TOML"),
        ("x" * (1 << 20) + "y", "has 1048577 bytes, more than the limit"),
    ],
)
def test_a_wrong_file(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text)
    run = snaprebuild("simulate", "metadata-log", path)
    assert run.exit_code in (2, 5)
    assert said in run.stderr
    assert run.stderr.count("\n") == 1
