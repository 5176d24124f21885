"""Decoded records of Kafka's own topics: the lines of ``inspect dump --decoder`` and of real kafka-dump-log, release by release."""

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import snaprebuild_process
from internal_topics import (
    AWKWARD,
    Line,
    consumer_group,
    framed,
    kafka_dumps,
    pair,
    random_pairs,
    raw,
    schemas_of,
    write_segments,
)
from kafka_classpath import KAFKA_VERSION
from manifests import FIXTURES, bundled
from random_messages import message_of

from formats.message_schema import load_schemas
from snaprebuild.inspect.decoder_names import Decoder

pytestmark = pytest.mark.kafka

SEGMENT = "00000000000000000000.log"
RELEASES = ("2.7.2", "3.4.1", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", KAFKA_VERSION)
"""Each release that changed a form, and the one before it."""

SHARE_TYPES = range(9, 16)
"""Record types of share groups: 4.0 has layouts of its own for them."""

OFFSETS_OF_2_7 = 3
"""The highest version of the values that a group coordinator of 2.7 knows."""


def minor(version: str) -> tuple[int, int]:
    major, number, _ = version.split(".")
    return int(major), int(number)


def committed_offsets(random_: random.Random, *, versions: int) -> list[Line]:
    """Commits and groups of the classic protocol, of versions that a release knows."""
    lines = []
    for record_type, name in ((1, "OffsetCommitValue"), (2, "GroupMetadataValue")):
        key_schema, schema = schemas_of("group-coordinator")[record_type]
        assert schema.name == name
        for version in range(versions + 1):
            values = [schema.body.defaults(), *(message_of(schema.body, version, random_) for _ in range(6))]
            lines += [
                pair("group-coordinator", record_type, message_of(key_schema.body, 0, random_), each, version) for each in values
            ]
        lines.append(pair("group-coordinator", record_type, message_of(key_schema.body, 0, random_), None))
    for version in range(versions + 1):
        for count, user_data in ((0, None), (1, None), (3, b""), (14, b"\0\1\xab"), (2, b"\0"), (40, None)):
            members = [f"consumer-{random_.randrange(10**9)}" for _ in range(count)]
            lines.append(consumer_group(random_, version, members, user_data=user_data))
    value = {**schemas_of("group-coordinator")[1][1].body.defaults(), "offset": 5, "metadata": "metadata"}
    return [*lines, pair("group-coordinator", 1, {"group": "g", "topic": "t", "partition": 1}, value, versions)]


def odd_records() -> list[Line]:
    """Unknown types and versions, tombstones, keys and values that end early or have bytes after them."""
    key = b"\0\3\0\1g"
    return [
        *(raw(bytes((0, 99, 1)), b"\0\0"), raw(b"\xff\xff\0\1g", b""), raw(b"\0", None), raw(b"", None)),
        *(raw(key, b""), raw(key, b"\0"), raw(key, b"\0\7\0\0\0\5\0"), raw(key, b"\0\0\0\0\0"), raw(key, b"\xff\xfe\0\0\0\5\0")),
        *(raw(key + b"zz", b"\0\0\0\0\0\5\0zzz"), raw(b"\0\3\0\5g", b"\0\0"), raw(b"\0\3\xff\xffg", b"\0\0\0\0\0\5\0")),
        raw(b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x09" + bytes(8) + b"\0\0\0\1\2m" + bytes(8) + b"\0"),
        pair("group-coordinator", 1, {"group": AWKWARD, "topic": "t", "partition": 1}, None),
    ]


def transactions(random_: random.Random, *, versions: int) -> list[Line]:
    """Every state, with partitions enough for hash tables of several sizes."""
    _, schema = schemas_of("transaction-state")[0]
    lines = []
    for version in range(versions + 1):
        for status in range(8):
            for _ in range(6):
                value = message_of(schema.body, version, random_) | {"transactionStatus": status, "clientTransactionVersion": 0}
                numbers = [
                    random_.sample(range(100), random_.choice((0, 1, 3, 4, 5, 11, 12, 13, 25))) for _ in range(random_.randrange(4))
                ]
                value["transactionPartitions"] = [
                    {"topic": f"t{index}", "partitionIds": each} for index, each in enumerate(numbers)
                ]
                if not status:
                    value["transactionPartitions"] = None
                lines.append(pair("transaction-state", 0, {"transactionalId": f"id-{status}"}, value, version))
    return [*lines, pair("transaction-state", 0, {"transactionalId": "gone"}, None)]


def cluster_metadata(random_: random.Random) -> list[Line]:
    """Records that every release since 3.0 knows, then those that only newer ones know."""
    lines = []
    for name in ("TopicRecord", "PartitionRecord", "ConfigRecord", "ClientQuotaRecord", "FenceBrokerRecord", "ProducerIdsRecord"):
        schema = load_schemas("cluster-metadata")[name]
        lines += [framed("cluster-metadata", schema, 0, message_of(schema.body, 0, random_)) for _ in range(8)]
    quota = load_schemas("cluster-metadata")["ClientQuotaRecord"]
    for value in (1e-3, 9.99e-4, 1e7, 9999999.0, 1e21, -0.0, 123456.789):
        lines.append(framed("cluster-metadata", quota, 0, {**quota.body.defaults(), "key": AWKWARD, "value": value}))
    return lines


def odd_framed() -> list[Line]:
    values = (
        b"\1\x63\0",
        b"\0\2\0",
        b"\2\2\0",
        b"",
        b"\1",
        b"\1\2",
        b"\1\2\0\1",
        b"\1\x14\0\0zz",
        b"\1\x14\7\0",
        b"\1\xff\xff\4\0",
    )
    return [raw(None, each) for each in values]


def newest_metadata(random_: random.Random) -> list[Line]:
    """Every record and version that the newest release with tools knows."""
    lines = []
    for name, schema in load_schemas("cluster-metadata").items():
        if name == "UnregisterControllerRecord":  # since 4.4
            continue
        for version in range(schema.versions.lowest, schema.versions.highest + 1):
            lines += [framed("cluster-metadata", schema, version, message_of(schema.body, version, random_)) for _ in range(4)]
    return lines


def remote_log_metadata(random_: random.Random) -> list[Line]:
    """Records of all kinds; those that Kafka refuses among them."""
    lines = []
    for schema in load_schemas("remote-log-metadata").values():
        for number in range(30):
            value = message_of(schema.body, 0, random_)
            for name in ("remotePartitionDeleteState", "remoteLogSegmentState"):
                if name in value:
                    value[name] = number % 5
            if "segmentLeaderEpochs" in value:
                epochs = [{"leaderEpoch": 9 - 2 * each, "offset": each * 10} for each in range(number % 4)]
                value |= {"segmentLeaderEpochs": epochs, "startOffset": number - 2, "endOffset": 27}
            lines.append(framed("remote-log-metadata", schema, 0, value))
    return [*lines, raw(None, b"\1\x63\0"), raw(None, b"\1\0\0\1")]


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Segments by name: one for each decoder, and variants of it."""
    random_ = random.Random(50)
    records: dict[str, list[Line]] = {
        "offsets-2.7": committed_offsets(random_, versions=OFFSETS_OF_2_7),
        "offsets-3.4": committed_offsets(random_, versions=OFFSETS_OF_2_7 + 1),
        "offsets-classic": random_pairs("group-coordinator", random_, only=range(3)),
        "offsets-types": random_pairs(
            "group-coordinator", random_, only=set(schemas_of("group-coordinator")) - set(SHARE_TYPES) - {0, 1, 2}
        ),
        "offsets-share": random_pairs("group-coordinator", random_, only=SHARE_TYPES),
        "offsets-odd": odd_records(),
        "transactions-2.7": transactions(random_, versions=0),
        "transactions-3.4": transactions(random_, versions=1),
        "share": [*random_pairs("share-coordinator", random_), raw(bytes((0, 9)), None)],
        "metadata": [*cluster_metadata(random_), *odd_framed()],
        "metadata-new": newest_metadata(random_),
        "remote": remote_log_metadata(random_),
    }
    place = tmp_path_factory.mktemp("topics")
    paths = {name: place / name / SEGMENT for name in records}
    write_segments({paths[name]: lines for name, lines in records.items()})
    return paths


def segments_for(version: str) -> dict[str, Decoder]:
    """The segments that kafka-dump-log of a release reads to their end, with the decoder of each."""
    release = minor(version)
    names = {"offsets-2.7": Decoder.OFFSETS, "transactions-2.7": Decoder.TRANSACTION_LOG}
    if release >= (3, 4):
        names |= {"offsets-3.4": Decoder.OFFSETS, "offsets-types": Decoder.OFFSETS, "transactions-3.4": Decoder.TRANSACTION_LOG}
        names |= {"metadata": Decoder.CLUSTER_METADATA}
    if release >= (3, 8):
        names |= {"offsets-odd": Decoder.OFFSETS, "offsets-classic": Decoder.OFFSETS}
    if release >= (3, 9):
        names |= {"remote": Decoder.REMOTE_LOG_METADATA}
    if release >= (4, 1):
        names |= {"offsets-share": Decoder.OFFSETS, "share": Decoder.SHARE_GROUP_STATE}
    if version == KAFKA_VERSION:
        names |= {"metadata-new": Decoder.CLUSTER_METADATA}
    return names


def decoded(line: str) -> str:
    """Key and payload of a record; where Kafka names a cause that is one of Java, without it."""
    _, mark, text = line.partition(" headerKeys: [")
    assert mark, line
    return text.partition(" due to: ")[0]


def escaped(line: str) -> str:
    """A line with the escapes that a terminal is protected by."""
    return line if line.isprintable() else "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def ours(decoder: Decoder, version: str | None, path: Path) -> list[str]:
    release = [] if version is None else ["--kafka-release", version]
    run = snaprebuild_process("inspect", "dump", "--decoder", decoder.value, *release, path)
    assert run.exit_code in (0, 1), run.stderr
    return [line for line in run.stdout.splitlines() if line.startswith("| ")]


@pytest.mark.parametrize(
    "version", [pytest.param(each, marks=() if each == KAFKA_VERSION else pytest.mark.night) for each in RELEASES]
)
def test_generated_records_are_decoded_as_by_kafka(version: str, segments: dict[str, Path]) -> None:
    names = segments_for(version)
    theirs = kafka_dumps(version, [(f"--{decoder.value}-decoder", segments[name]) for name, decoder in names.items()])
    for (name, decoder), lines in zip(names.items(), theirs, strict=True):
        kafkas = "\n".join(lines).split("\n| ")[1:]  # awkward texts have line ends
        records = [f"| {each}".split("\nbaseOffset: ")[0] for each in kafkas]
        mine = ours(decoder, version, segments[name])
        assert len(mine) == len(records) > 10
        assert [decoded(line) for line in mine] == [decoded(escaped(line)) for line in records], name


def fixture_files(*names: str) -> list[tuple[Decoder, Path]]:
    topics: dict[str, Any] = {
        "__consumer_offsets": Decoder.OFFSETS,
        "__transaction_state": Decoder.TRANSACTION_LOG,
        "__cluster_metadata": Decoder.CLUSTER_METADATA,
        "__remote_log_metadata": Decoder.REMOTE_LOG_METADATA,
    }
    return [
        (decoder, path)
        for name in names
        for topic, decoder in topics.items()
        for path in sorted((FIXTURES / name).rglob(f"{topic}-*/*.log"))
    ]


@pytest.mark.parametrize("version", [KAFKA_VERSION, *(pytest.param(each, marks=pytest.mark.night) for each in ("3.7.2", "3.9.2"))])
def test_logs_of_brokers_are_decoded_as_by_kafka(version: str, tmp_path: Path) -> None:
    """Whole lines with the newest tool; of older ones the decoded part."""
    names = ("txn-state", "txn-state4", "kraft-metadata", "tiered-local")
    copies = {name: shutil.copytree(bundled(name), tmp_path / name) for name in names}
    files = [(decoder, copies[name] / path.relative_to(FIXTURES / name)) for name in names for decoder, path in fixture_files(name)]
    files = [(decoder, path) for decoder, path in files if decoder.first_release <= minor(version)]
    assert {decoder for decoder, _ in files} >= {Decoder.OFFSETS, Decoder.TRANSACTION_LOG, Decoder.CLUSTER_METADATA}
    theirs = kafka_dumps(version, [(f"--{decoder.value}-decoder", path) for decoder, path in files])
    count = 0
    for (decoder, path), lines in zip(files, theirs, strict=True):
        kafkas = [line.rstrip() for line in lines if line.startswith("| ")]
        mine = ours(Decoder.AUTO, version, path)
        if version != KAFKA_VERSION:
            kafkas = [decoded(line) for line in kafkas if " key: " in line or " payload: " in line]
            mine = [decoded(line) for line in mine if " key: " in line or " payload: " in line]
        assert mine == kafkas, (decoder, path)
        count += len(mine)
    assert count > 100
