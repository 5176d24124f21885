"""Unknown contents of a metadata log are counted and named, and no sentence claims to cover them."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from archives import unpack
from command import in_json, snaprebuild
from manifests import FIXTURES
from metadata_dirs import BUNDLED, metadata_copy
from metadata_logs import append_metadata_record

from formats.message import UNKNOWN_TAGGED_FIELDS
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.unknown_contents import UnknownContentsCounter

TEXT = "2 tagged fields (100, 102) that this version of snaprebuild does not know"
"""Somebody wrote them into the log of a broker of 4.3.1."""
COVERED = "The result covers what it knows"
VERBS = (("cluster check",), ("cluster image",), ("cluster isr",), ("cluster history", "--broker", "1"), ("cluster advise",))


def check_member(found: Any) -> None:
    """The member ``unknown_contents`` of a document, of the log that a broker of 4.4.0 and somebody wrote."""
    assert [each["tag"] for each in found["tagged_fields"]] == [100, 102]
    assert (found["count"], found["record_types"], found["setting_names"], found["files"]) == (2, [], [], [])


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("newer")
    unpack(FIXTURES / "kraft-unknown-contents" / "logs.tar.gz", to)
    return to


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_it_is_counted_and_named(words: tuple[str, ...], newer: Path) -> None:
    run = in_json(words[0], newer, *words[1:])
    (message,) = [each["message"] for each in run.document["findings"] if each["code"] == "unknown-metadata"]
    assert message.startswith(TEXT)
    is_check = words[0] == "cluster check"
    check_member(run.document["nodes"][0]["unknown_contents"] if is_check else run.document["unknown_contents"])
    healthy = in_json(words[0], BUNDLED["kraft-metadata"], *words[1:])
    assert "unknown-metadata" not in healthy.codes
    assert (healthy.document["nodes"][0] if is_check else healthy.document)["unknown_contents"] is None
    assert run.exit_code in (0, healthy.exit_code, 1)


def test_a_sentence_about_rules_says_what_it_covers(newer: Path) -> None:
    run = snaprebuild("cluster check", newer)
    assert "no violation" in run.text, "no rule needed any of it"
    assert in_json("cluster check", newer).codes == {"unknown-metadata": 1, "features-held-back": 1}, "controller 93 is left over"
    assert re.search(r"\b1 node: \d+ rules held over what this version knows; no violation", run.text)
    assert f"Not covered: {TEXT}." in run.text
    healthy = snaprebuild("cluster check", BUNDLED["kraft-metadata"])
    assert "over what this version knows" not in healthy.text
    assert "rules held; no violation" in healthy.text


@pytest.mark.parametrize("words", [each for each in VERBS if each[0] != "cluster check"], ids=lambda words: words[0])
def test_other_sentences_say_what_they_do_not_cover(words: tuple[str, ...], newer: Path) -> None:
    for directory, is_there in ((newer, True), (BUNDLED["kraft-metadata"], False)):
        text = " ".join(snaprebuild(words[0], directory, *words[1:]).stdout.split())
        assert (f"Not covered: {TEXT}." in text) is is_there
    text = " ".join(snaprebuild(*VERBS[1], newer, "-v").stdout.split())
    assert "unknown to Kafka" not in text, "this version does not know it; a later Kafka does"


def test_the_history_names_what_it_cannot_read(newer: Path) -> None:
    """The change has two fields besides the epoch."""
    document = in_json("cluster history", newer, "--topic", "meta-1").document
    changes = [what for timeline in document["partitions"] for entry in timeline["entries"] for what in entry["changes"]]
    assert [each for each in changes if "does not know" in each] == ["2 tagged fields (100, 102) that this version does not know"]
    assert "nothing but its epoch" not in changes


def test_a_controller_that_cannot_run_any_more_is_marked(newer: Path) -> None:
    """Controller 93 registered with levels that its cluster has left: while it is registered, Kafka refuses a new level."""
    lines = snaprebuild("cluster image", newer).stdout.splitlines()
    (at,) = [number for number, line in enumerate(lines) if line.split()[:1] == ["93"]]
    remark = " ".join((lines[at][50:] + lines[at + 1]).split())
    assert remark.endswith("supports metadata.version 1 to 19, the cluster has 30")
    assert "supports" not in snaprebuild("cluster image", BUNDLED["kraft-metadata"]).stdout


def test_verdicts_and_fleets_name_it_too(newer: Path, tmp_path: Path) -> None:
    """Commands that read the log for another purpose rest on it as well."""
    replica = tmp_path / "n1"
    shutil.copytree(newer, replica)
    (replica / "meta-2-0").mkdir()
    (replica / "meta-2-0" / f"{0:020d}.log").touch()
    verdict = in_json("cluster source", replica)
    assert [each["message"] for each in verdict.document["findings"] if each["code"] == "unknown-metadata"] == [
        f"{TEXT}. {COVERED}"
    ]
    check_member(verdict.document["replicas"][0]["metadata_log"]["unknown_contents"])
    assert f"Not covered: {TEXT}" in " ".join(snaprebuild("cluster source", replica).stdout.split())
    scan = tmp_path / "scan.json"
    snaprebuild("scan", replica, "--save-json", scan)
    merged = in_json("fleet", scan, "--metadata", replica)
    assert [each["message"] for each in merged.document["findings"] if each["code"] == "unknown-metadata"] == [f"{TEXT}. {COVERED}"]
    check_member(merged.document["unknown_contents"])


def test_each_kind_counts_once_wherever_it_is() -> None:
    unknown = UnknownContentsCounter()
    assert not unknown
    inner = {"name": "PLAINTEXT", UNKNOWN_TAGGED_FIELDS: [(7, b"")]}
    message = {"brokerId": 1, "endPoints": [{"name": "CONTROLLER"}, inner], UNKNOWN_TAGGED_FIELDS: [(9, b"x")]}
    for _ in range(2):
        unknown.add_record(ClusterMetadataRecord(MetadataRecordType.REGISTER_BROKER, "RegisterBrokerRecord", 1, message))
        unknown.add_unread(bytes((1, 99, 3, 0)))
        unknown.add_unread(b"")
        unknown.add_unread(None)
    assert unknown.text == "2 tagged fields (7, 9) and 1 record type (99 version 3)"


def test_a_setting_that_no_catalogued_release_knows(tmp_path: Path) -> None:
    logs = Path(shutil.copytree(BUNDLED["node1"], tmp_path / "logs"))
    message = {"resourceType": 2, "resourceName": "orders", "name": "of.a.later.release", "value": "secret"}
    append_metadata_record(logs, MetadataRecordType.CONFIG, message, 0)
    run = in_json("cluster image", logs)
    (said,) = [each["message"] for each in run.document["findings"] if each["code"] == "unknown-metadata"]
    assert said.startswith("1 setting (of.a.later.release) that this version of snaprebuild does not know")
    assert run.document["unknown_contents"]["setting_names"] == ["of.a.later.release"]
    assert "secret" not in run.text


@pytest.mark.parametrize("words", VERBS[1:2], ids=lambda words: words[0])
def test_a_file_of_an_unknown_name(words: tuple[str, ...], tmp_path: Path) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    assert "unknown-files" not in in_json(*words, directory).codes
    (directory / "00000000000000000001.newindex").write_bytes(b"of a later release")
    run = in_json(*words, directory)
    (message,) = [each["message"] for each in run.document["findings"] if each["code"] == "unknown-files"]
    assert message == "1 file of a name that is not known, left out: 00000000000000000001.newindex"
    assert (run.exit_code, run.document["unknown_contents"]["files"]) == (0, ["00000000000000000001.newindex"])


def test_a_plan_says_which_objects_it_does_not_cover(tmp_path: Path) -> None:
    logs, store = (
        FIXTURES / "tiered-local" / "logs",
        Path(shutil.copytree(FIXTURES / "tiered-local" / "remote", tmp_path / "remote")),
    )
    assert in_json("follower plan", store, logs).document["unknown_objects"] == 0
    assert "Not covered" not in snaprebuild("follower plan", store, logs).text
    (store / "of-another-plugin").write_bytes(b"?")
    assert in_json("follower plan", store, logs).document["unknown_objects"] == 1
    assert "Not covered: 1 object in the store" in " ".join(snaprebuild("follower plan", store, logs).stdout.split())
