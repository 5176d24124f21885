"""Records of the metadata log; bytes of Kafka's own are in ``test_message``, and ``cluster/test_metadata_log`` reads whole logs."""

import re

import pytest

from formats.errors import BadLengthError, BadValueError, BadVersionError
from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import (
    ClusterMetadataRecord,
    MetadataRecordType,
    read_cluster_metadata_record,
    write_cluster_metadata_record,
)


def test_every_known_message_has_its_name_here() -> None:
    keys = {schema.api_key: name for name, schema in load_schemas("cluster-metadata").items()}
    assert sorted(keys) == sorted(MetadataRecordType)
    for key, name in keys.items():
        assert MetadataRecordType(key).name.replace("_", "").lower() + "record" == name.lower(), name


def test_no_op_is_the_message_of_the_schema() -> None:
    record = read_cluster_metadata_record(bytes.fromhex("01140000"))
    assert write_cluster_metadata_record(record).hex() == "01140000"
    assert record == ClusterMetadataRecord(20, "NoOpRecord", 0, load_schemas("cluster-metadata")["NoOpRecord"].body.defaults())


@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        ("00020002", BadVersionError, "byte 0: version of the frame of a message: expected 1, found 0"),
        ("010d00", BadValueError, "byte 1: api key of a message: expected one of 0, 1, 2"),
        ("010209", BadVersionError, "version of TopicRecord: expected 0..0, found 9"),
        ("0102000274959eafbe66a34d62830544d5e92400b50000", BadLengthError, "byte 22: TopicRecord: expected its end"),
    ],
    ids=["preview of 2.8", "unknown key", "newer version", "bytes behind"],
)
def test_what_is_refused(text: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=re.escape(says)):
        read_cluster_metadata_record(bytes.fromhex(text))
