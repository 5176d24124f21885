"""What a metadata log holds that this version does not know is counted and named, and no sentence claims to cover it."""

import tarfile
from pathlib import Path

import pytest
from in_process import in_json, snaprebuild
from manifests import FIXTURES
from metadata_dirs import BUNDLED, metadata_copy

from formats.message import UNKNOWN_TAGGED_FIELDS
from formats.metadata.cluster_metadata import ClusterMetadataRecord, MetadataRecordType
from snaprebuild.cluster.metadata.unknown_contents import UnknownContents

TEXT = (
    "2 tagged fields (100, 102) and 2 settings (max.decompressed.message.bytes, remote.copy.lag.ms) "
    "that this version of snaprebuild does not know"
)
"""Somebody wrote the fields into the log of a broker of 4.3.1; the settings are topics' in 4.4.0."""
VERBS = (("cluster check",), ("cluster image",), ("cluster isr",), ("cluster history", "--broker", "1"))


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    to = tmp_path_factory.mktemp("newer")
    with tarfile.open(FIXTURES / "kraft-unknown-contents" / "logs.tar.gz") as archive:
        archive.extractall(to, filter="data")
    return to


@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_it_is_counted_and_named(words: tuple[str, ...], newer: Path) -> None:
    run = in_json(words[0], newer, *words[1:])
    (message,) = [each["message"] for each in run.document["findings"] if each["code"] == "unknown-metadata"]
    assert message.startswith(TEXT)
    healthy = in_json(words[0], BUNDLED["kraft-metadata"], *words[1:])
    assert "unknown-metadata" not in healthy.codes
    assert run.exit_code in (0, healthy.exit_code, 1)


def test_a_sentence_about_rules_says_what_it_covers(newer: Path) -> None:
    run = snaprebuild("cluster check", newer)
    assert run.exit_code == 0, "no rule needed any of it"
    assert "1 node: 18 rules held over what this version knows; no violation" in run.text
    assert f"Not covered: {TEXT}." in run.text
    healthy = snaprebuild("cluster check", BUNDLED["kraft-metadata"])
    assert "over what this version knows" not in healthy.text
    assert "rules held; no violation" in healthy.text


def test_each_kind_counts_once_wherever_it_is() -> None:
    unknown = UnknownContents()
    assert not unknown
    inner = {"name": "PLAINTEXT", UNKNOWN_TAGGED_FIELDS: [(7, b"")]}
    message = {"brokerId": 1, "endPoints": [{"name": "CONTROLLER"}, inner], UNKNOWN_TAGGED_FIELDS: [(9, b"x")]}
    for _ in range(2):
        unknown.add_record(ClusterMetadataRecord(MetadataRecordType.REGISTER_BROKER, "RegisterBrokerRecord", 1, message))
        unknown.add_unread(bytes((1, 99, 3, 0)))
        unknown.add_unread(b"")
        unknown.add_unread(None)
    assert unknown.text == "2 tagged fields (7, 9) and 1 record type (99 version 3)"


@pytest.mark.parametrize("words", VERBS[1:2], ids=lambda words: words[0])
def test_a_file_of_an_unknown_name(words: tuple[str, ...], tmp_path: Path) -> None:
    directory = metadata_copy("kraft-metadata", tmp_path)
    assert "unknown-files" not in in_json(*words, directory).codes
    (directory / "00000000000000000001.newindex").write_bytes(b"of a later release")
    run = in_json(*words, directory)
    (message,) = [each["message"] for each in run.document["findings"] if each["code"] == "unknown-files"]
    assert message == "1 file of a name that is not known, left out: 00000000000000000001.newindex"
    assert run.exit_code == 0
