"""Verbs that write leave out topics that Kafka would upload under topic id zero; verbs that read report them; the broker starts."""

import hashlib
import shutil
from pathlib import Path

import pytest
from command import in_json, snaprebuild, snaprebuild_process
from log_dirs import copy_of, remove_snapshots, snapshots_in
from manifests import bundled
from sentences import AGAIN, FREES_ALL, NOT_READY, RAISE_THE_PROTOCOL

from cli.test_next_command import next_words

PARTITIONS = ("deleted-0", "logappend-0", "mixed-0", "plain-0")
TOPICS = f"{NOT_READY}4 topics have no id."
FIRST_LINE = f"{TOPICS} {RAISE_THE_PROTOCOL}"
ACCEPT = "--accept-topic-id-zero"


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directories of a broker 2.7 without snapshots."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    copy = copy_of("kafka27-mixed", tmp_path)
    for name in PARTITIONS:
        remove_snapshots(copy / name)
    return copy


@pytest.fixture
def stopped_logs(logs: Path) -> Path:
    """The log directory with the snapshot that the clean stop wrote in the log of one segment."""
    name = f"plain-0/{559:020d}.snapshot"
    shutil.copy2(bundled("kafka27-mixed") / "logs" / name, logs / name)
    return logs


def properties(logs: Path, protocol: str, remote: str = "true") -> Path:
    """The configuration of the next start."""
    path = logs.parent / "server.properties"
    path.write_text(
        f"log.dirs={logs}\nzookeeper.connect=localhost:2181\ninter.broker.protocol.version={protocol}\n"
        f"remote.log.storage.system.enable={remote}\n"
    )
    return path


def give_ids(logs: Path, *names: str) -> None:
    for name in names:
        (logs / name / "partition.metadata").write_text("version: 0\ntopic_id: hVLXsV0ZSTSJwjeZBRZyLg")


def written(logs: Path) -> dict[str, int]:
    """How many snapshots each partition has."""
    return {name: count for name in PARTITIONS if (count := len(snapshots_in(logs / name)))}


EACH = {"deleted-0": 2, "logappend-0": 5, "mixed-0": 15, "plain-0": 1}
"""Boundaries of the fixture, from its manifest."""


@pytest.mark.parametrize("verb", ["rebuild", "stage", "plan"])
def test_nothing_is_written_without_consent(verb: str, logs: Path, tmp_path: Path) -> None:
    source = ("--server-properties", properties(logs, "2.7"))
    more = ("--to", tmp_path / "staged") if verb == "stage" else ()
    run = snaprebuild(verb, *source, *more)
    assert run.exit_code == 3
    assert run.text.startswith(FIRST_LINE)
    assert run.stderr.count("--accept-topic-id-zero") == 1, "one cause, one line"
    assert written(logs) == {}
    assert not list((tmp_path / "staged").rglob("*.snapshot"))


def test_scan_promises_nothing_of_a_rebuild_that_is_refused(logs: Path) -> None:
    """Both speak of the same topics: `rebuild` frees segments after these have an id."""
    run = snaprebuild("scan", "--server-properties", properties(logs, "2.7"))
    assert f"cannot be uploaded. With their ids {FREES_ALL}." in run.text
    assert FREES_ALL in snaprebuild("scan", "--server-properties", properties(logs, "3.6")).text


def test_with_consent_all_of_it_is_written(logs: Path) -> None:
    run = in_json("rebuild", "--server-properties", properties(logs, "2.7"), ACCEPT)
    assert run.exit_code == 0
    assert run.codes["topic-id-zero"] == 1
    assert written(logs) == EACH


def test_elsewhere_all_of_it_is_written(logs: Path, tmp_path: Path) -> None:
    run = in_json("rebuild", "--server-properties", properties(logs, "2.7"), "--out", tmp_path / "out")
    assert run.exit_code == 0
    assert run.codes["topic-id-zero"] == 1
    assert written(tmp_path / "out") == EACH


def test_topics_with_an_id_are_written(logs: Path) -> None:
    """Remote storage is in use, and the protocol was raised: some topics have their id."""
    (logs / "__remote_log_metadata-7").mkdir()
    give_ids(logs, "plain-0", "logappend-0")
    run = in_json("rebuild", "--server-properties", properties(logs, "3.6"))
    assert run.exit_code == 3
    assert "2 topics (deleted, mixed) without a topic id" in run.messages("topic-id-zero")
    assert written(logs) == {"logappend-0": 5, "plain-0": 1}


@pytest.mark.parametrize(("protocol", "remote", "note"), [("2.7", "false", 1), ("3.6", "true", 1), ("3.6", "false", 1)])
def test_without_remote_storage_or_with_a_newer_protocol_all_of_it_is_written(
    protocol: str, remote: str, note: int, logs: Path
) -> None:
    run = in_json("rebuild", "--server-properties", properties(logs, protocol, remote))
    assert run.exit_code == 0
    assert run.codes["topic-id-missing"] == note
    assert written(logs) == EACH


def test_with_ids_there_is_not_even_a_note(logs: Path) -> None:
    give_ids(logs, *PARTITIONS)
    run = in_json("rebuild", "--server-properties", properties(logs, "3.6"))
    assert run.exit_code == 0
    assert "topic-id-missing" not in run.codes
    assert written(logs) == EACH


@pytest.mark.parametrize("verb", ["scan", "verify"])
def test_verbs_that_read_report_it(verb: str, logs: Path) -> None:
    run = snaprebuild(verb, "--server-properties", properties(logs, "2.7"))
    assert run.exit_code == 1
    assert run.stdout.startswith(f"{NOT_READY}4 topics have no id. Also: 23 missing")
    assert run.text.startswith(TOPICS)
    assert run.text.count(NOT_READY) == run.text.count(RAISE_THE_PROTOCOL) == 1
    assert len(run.stdout.splitlines()[0]) <= 100
    healthy = snaprebuild(verb, "--server-properties", properties(logs, "3.6"))
    assert "remote storage" not in healthy.text.partition("Next:")[0]


def test_it_is_reported_too_if_no_snapshot_is_missing(logs: Path) -> None:
    in_json("rebuild", logs)
    source = ("--server-properties", properties(logs, "2.7"))
    for verb in ("scan", "verify", "plan", "rebuild", "before-start"):
        run = snaprebuild(verb, *source)
        assert run.exit_code == 1, verb
        # After the comparison somebody has to raise the protocol: stderr shows how.
        assert (next_words(run) or "none") == ([AGAIN] if verb in ("verify", "before-start") else ["verify", *map(str, source)])
        assert run.text.startswith(TOPICS)
        assert run.text.count(NOT_READY) == run.text.count(RAISE_THE_PROTOCOL) == 1
        assert "nothing to do" not in run.text


def test_install_asks_the_configuration_of_the_next_start(stopped_logs: Path, tmp_path: Path) -> None:
    source = properties(stopped_logs, "2.7", "false")
    assert in_json("stage", "--server-properties", source, "--to", tmp_path / "staged").exit_code == 0
    properties(stopped_logs, "2.7")
    plan = tmp_path / "staged" / "plan.jsonl"
    for more in (("--dry-run",), ()):
        refused = in_json("install", "--plan", plan, *more)
        assert refused.exit_code == 3
        assert refused.codes["topic-id-zero"] == 1
        assert written(stopped_logs) == {"plain-0": 1}
    for more in (("--dry-run",), ()):
        run = snaprebuild("install", "--plan", plan, *more)
        assert run.text.startswith(NOT_READY)
        assert next_words(run) == [AGAIN], "`stage` would be refused for the same reason"
    properties(stopped_logs, "3.6")
    give_ids(stopped_logs, *PARTITIONS)
    assert in_json("install", "--plan", plan).exit_code == 0
    assert written(stopped_logs) == EACH


def test_install_with_consent(stopped_logs: Path, tmp_path: Path) -> None:
    source = properties(stopped_logs, "2.7", "false")
    in_json("stage", "--server-properties", source, "--to", tmp_path / "staged")
    properties(stopped_logs, "2.7")
    assert in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl", ACCEPT).exit_code == 0
    assert written(stopped_logs) == EACH


def test_the_next_command_of_an_install_keeps_the_consent(stopped_logs: Path, tmp_path: Path) -> None:
    """After a dry run, and after a run that passed its deadline: without the consent the same install would be refused."""
    source = properties(stopped_logs, "2.7", "false")
    in_json("stage", "--server-properties", source, "--to", tmp_path / "staged")
    properties(stopped_logs, "2.7")
    plan = tmp_path / "staged" / "plan.jsonl"
    sha256 = hashlib.sha256(plan.read_bytes()).hexdigest()
    words = ["install", "--plan", str(plan), ACCEPT, "--require-plan", sha256]
    for more in (("--dry-run",), ("--deadline", "0")):
        following = next_words(snaprebuild(*words, *more))
        assert (following[0], set(following)) == ("install", set(words)), more
    assert in_json(*words).exit_code == 0
    assert written(stopped_logs) == EACH


def test_what_was_staged_with_consent_needs_none_to_be_installed(stopped_logs: Path, tmp_path: Path) -> None:
    source = properties(stopped_logs, "2.7")
    assert in_json("stage", "--server-properties", source, "--to", tmp_path / "staged", ACCEPT).exit_code == 0
    assert in_json("install", "--plan", tmp_path / "staged" / "plan.jsonl").exit_code == 0
    assert written(stopped_logs) == EACH


def test_a_saved_plan_keeps_the_consent(logs: Path, tmp_path: Path) -> None:
    source = ("--server-properties", properties(logs, "2.7"))
    assert in_json("plan", *source, ACCEPT, "--save", tmp_path / "plan.jsonl").exit_code == 0
    assert in_json("rebuild", "--plan", tmp_path / "plan.jsonl").exit_code == 0
    assert written(logs) == EACH


@pytest.mark.parametrize("more", [(), ("--fail-closed",)])
def test_before_start_writes_none_of_them_and_starts_the_broker(more: tuple[str, ...], logs: Path) -> None:
    run = snaprebuild_process("before-start", "--server-properties", properties(logs, "2.7"), *more, "--", "echo", "started")
    assert (run.exit_code, run.stdout) == (0, "started\n")
    assert "23 not written" in run.stderr
    assert "not ready for remote storage: 4 topics without an id" in run.stderr
    assert written(logs) == {}


def test_before_start_without_a_command_ends_with_a_finding(logs: Path) -> None:
    run = in_json("before-start", "--server-properties", properties(logs, "2.7"))
    assert run.exit_code == 1
    assert {each["state"] for each in run.document["partitions"]} == {"not-prepared"}
    assert written(logs) == {}
