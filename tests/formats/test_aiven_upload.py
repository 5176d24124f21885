"""Our manifests equal those that the plugin itself wrote, byte for byte."""

import json

import pytest
from manifests import AIVEN, READS

from formats.errors import BadValueError
from formats.partition.checkpoint_file import LeaderEpochEntry
from formats.partition.partition_metadata import uuid_from_text
from formats.remote.aiven_manifest import SegmentIndex
from formats.remote.aiven_upload import plain_indexes, plain_manifest, plain_segment
from formats.remote.remote_log_metadata import RemoteSegment, RemoteSegmentId, SegmentState, TopicIdPartition
from formats.remote.upload_claim import ClaimKey, UploadClaim, parse_claim_key, read_claim, write_claim

PLAIN = [
    (name, number)
    for name, variant in READS["variants"].items()
    if not any(each in name for each in ("zstd", "encrypted"))
    for number in range(len(variant["segments"]))
]


@pytest.mark.parametrize("name", ["startOffset", "endOffset", "brokerId", "maxTimestampMs", "eventTimestampMs", "txnIdxEmpty"])
@pytest.mark.parametrize("value", ["7", None])
def test_a_number_that_is_none_is_no_copy_of_ours(name: str, value: object) -> None:
    segment_id = bytes(range(16))
    partition = TopicIdPartition("t", bytes(range(1, 17)), 0)
    segment = RemoteSegment(
        RemoteSegmentId(partition, segment_id), segment_id, 0, 6, 1, 5, 6, (), 7, None, SegmentState.COPY_SEGMENT_STARTED, False
    )
    manifest = plain_manifest(segment, 7, dict.fromkeys(SegmentIndex, b""))
    assert plain_segment(manifest, partition, segment_id, file="x") == segment
    document = json.loads(manifest)
    document["remoteLogSegmentMetadata"][name] = value
    with pytest.raises(BadValueError, match="expected one of the copy"):
        plain_segment(json.dumps(document).encode(), partition, segment_id, file="x")


@pytest.mark.parametrize(("name", "number"), PLAIN)
def test_as_the_plugin_wrote_it(name: str, number: int) -> None:
    variant = READS["variants"][name]
    reported = variant["segments"][number]["metadata"]
    stem = AIVEN / variant["store"] / variant["segments"][number]["key"]
    theirs = stem.with_name(stem.name + ".rsm-manifest").read_bytes()
    data = stem.with_name(stem.name + ".indexes").read_bytes()
    places = json.loads(theirs)["segmentIndexes"]
    indexes = {
        index: None if places[index] is None else data[places[index]["position"] :][: places[index]["size"]]
        for index in SegmentIndex
    }
    partition = TopicIdPartition(reported["topic"], uuid_from_text(reported["topic_id"]), reported["partition"])
    segment_id = uuid_from_text(reported["segment_id"])
    segment = RemoteSegment(
        RemoteSegmentId(partition, segment_id),
        segment_id,
        reported["start_offset"],
        reported["end_offset"],
        reported["broker_id"],
        reported["max_timestamp_ms"],
        reported["event_timestamp_ms"],
        tuple(LeaderEpochEntry(int(epoch), start) for epoch, start in reported["leader_epochs"].items()),
        reported["segment_size"],
        None,
        SegmentState.COPY_SEGMENT_STARTED,
        reported["txn_index_empty"],
    )
    ours = plain_manifest(segment, int(variant["config"]["chunk.size"]), indexes)
    if "4.3.1" not in variant["kafka_api"]:  # of which the plugin that runs with an older broker knows nothing
        ours = ours.replace(b',"txnIdxEmpty":' + (b"true" if reported["txn_index_empty"] else b"false"), b"")
    assert ours == theirs
    assert plain_indexes(indexes) == data


KEY = ClaimKey("tier/", bytes(range(16)), 7, 583, 1150)


def test_claims() -> None:
    text = "tier/.snaprebuild-claims/AAECAwQFBgcICQoLDA0ODw/7/00000000000000000583-00000000000000001150.json"
    assert str(KEY) == text
    assert parse_claim_key(text) == KEY
    for wrong in (text[:-1], text.replace("/7/", "/07/"), text.replace("Dw/", "Dx/"), text.replace("snaprebuild", "other")):
        assert parse_claim_key(wrong) is None
    claim = UploadClaim(bytes(range(16)), "broker-1:/logs", "0123abcd", 1_795_259_490_875)
    assert read_claim(write_claim(claim)) == claim
    assert json.loads(write_claim(claim))["segment_id"] == "AAECAwQFBgcICQoLDA0ODw"


@pytest.mark.parametrize("wrong", [b"", b"[]", b"{}", b'{"schema":"snaprebuild.tier-claim/2"}'])
def test_what_is_no_claim(wrong: bytes) -> None:
    with pytest.raises(BadValueError, match="claim of an upload"):
        read_claim(wrong, file="a")


@pytest.mark.parametrize(("name", "value"), [("schema", "x/1"), ("segment_id", "A" * 22), ("claimed_ms", -1), ("run", None)])
def test_claims_with_a_wrong_field(name: str, value: object) -> None:
    fields = json.loads(write_claim(UploadClaim(bytes(range(16)), "me", "r", 5)))
    with pytest.raises(BadValueError, match="claim of an upload"):
        read_claim(json.dumps(fields | {name: value}).encode())
