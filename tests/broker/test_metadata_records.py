"""Every record of the metadata log, version by version, against Kafka's own classes of the release that has the most of them."""

import json
import random

import pytest
from kafka_classpath import NEWEST_BROKER, java_output
from random_messages import as_kafka_prints, message_of

from formats.message_schema import load_schemas
from formats.metadata.cluster_metadata import (
    ClusterMetadataRecord,
    MetadataRecordType,
    read_cluster_metadata_record,
    write_cluster_metadata_record,
)

pytestmark = pytest.mark.kafka

EACH = 25
"""Records of each kind and version."""


def test_kafka_reads_what_is_written_and_writes_the_same_bytes() -> None:
    """Bytes both ways, and each value; the keys and versions are all that Kafka knows, and no others."""
    random_ = random.Random(29)
    schemas = {schema.api_key: schema for schema in load_schemas("cluster-metadata").values()}
    cases = []
    for kind in MetadataRecordType:
        schema = schemas[kind]
        for version in range(schema.versions.lowest, schema.versions.highest + 1):
            messages = [schema.body.defaults(), *(message_of(schema.body, version, random_) for _ in range(EACH))]
            cases += [ClusterMetadataRecord(kind, schema.name, version, message) for message in messages]
    written = [write_cluster_metadata_record(each) for each in cases]
    known, *answers = java_output("MetadataRecords", lines=[value.hex() for value in written], version=NEWEST_BROKER)
    ours = {f"{key}:{schema.versions.lowest}-{schema.versions.highest}" for key, schema in schemas.items()}
    assert set(known.split()) == ours
    assert len(answers) == len(cases)
    for record, value, answer in zip(cases, written, answers, strict=True):
        kafkas, key, version, text = answer.split(" ", 3)
        assert (kafkas, int(key), int(version)) == (value.hex(), record.api_key, record.version), record
        assert json.loads(text) == as_kafka_prints(record.message, schemas[record.api_key].body, record.version), record
        assert read_cluster_metadata_record(value) == record
