"""Names of partition files and directories, as Kafka writes and reads them."""

from __future__ import annotations

import time

import pytest
from fixture_files import broker_files
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import FormatError
from formats.partition import file_names
from formats.partition.file_names import (
    DirectoryForm,
    FileKind,
    FileSuffix,
    PartitionDirectoryName,
    PartitionFileName,
    is_loadable_dir_name,
    parse_file_name,
    parse_partition_dir_name,
    topic_fault,
)

N = "00000000000000004711"
LAST = "09223372036854775807"

KNOWN = [
    (f"{N}.log", FileKind.LOG, 4711, FileSuffix.NONE),
    (f"{N}.index", FileKind.OFFSET_INDEX, 4711, FileSuffix.NONE),
    (f"{N}.timeindex", FileKind.TIME_INDEX, 4711, FileSuffix.NONE),
    (f"{N}.txnindex", FileKind.TRANSACTION_INDEX, 4711, FileSuffix.NONE),
    (f"{N}.snapshot", FileKind.PRODUCER_SNAPSHOT, 4711, FileSuffix.NONE),
    (f"{N}.snapshot.deleted", FileKind.PRODUCER_SNAPSHOT, 4711, FileSuffix.DELETED),
    (f"{N}.snapshot.tmp", FileKind.PRODUCER_SNAPSHOT_TEMPORARY, 4711, FileSuffix.NONE),
    (f"{N}.log.deleted", FileKind.LOG, 4711, FileSuffix.DELETED),
    (f"{N}.log.cleaned", FileKind.LOG, 4711, FileSuffix.CLEANED),
    (f"{N}.log.swap", FileKind.LOG, 4711, FileSuffix.SWAP),
    (f"{N}.index.deleted", FileKind.OFFSET_INDEX, 4711, FileSuffix.DELETED),
    (f"{N}.timeindex.cleaned", FileKind.TIME_INDEX, 4711, FileSuffix.CLEANED),
    (f"{N}.txnindex.swap", FileKind.TRANSACTION_INDEX, 4711, FileSuffix.SWAP),
    (f"{LAST}.log", FileKind.LOG, 2**63 - 1, FileSuffix.NONE),
    ("0" * 20 + ".snapshot", FileKind.PRODUCER_SNAPSHOT, 0, FileSuffix.NONE),
]


@pytest.mark.parametrize(("name", "kind", "offset", "suffix"), KNOWN, ids=[row[0] for row in KNOWN])
def test_names_with_an_offset(name: str, kind: FileKind, offset: int, suffix: FileSuffix) -> None:
    assert parse_file_name(name) == PartitionFileName(kind, offset, suffix)


@pytest.mark.parametrize(
    ("build", "ending"),
    [
        (file_names.offset_index_file_name, ".index"),
        (file_names.time_index_file_name, ".timeindex"),
        (file_names.transaction_index_file_name, ".txnindex"),
        (file_names.snapshot_file_name, ".snapshot"),
        (file_names.snapshot_temporary_file_name, ".snapshot.tmp"),
    ],
)
def test_builders(build: object, ending: str) -> None:
    assert build(4711) == N + ending
    assert build(2**63 - 1) == LAST + ending
    for bad in (-1, 2**63):
        with pytest.raises(FormatError):
            build(bad)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("leader-epoch-checkpoint", PartitionFileName(FileKind.LEADER_EPOCH_CHECKPOINT)),
        ("partition.metadata", PartitionFileName(FileKind.PARTITION_METADATA)),
        ("quorum-state", PartitionFileName(FileKind.QUORUM_STATE)),
        (f"{N}-0000000012.checkpoint", PartitionFileName(FileKind.KRAFT_CHECKPOINT, 4711, epoch=12)),
        (f"{N}-0000000012.checkpoint.deleted", PartitionFileName(FileKind.KRAFT_CHECKPOINT, 4711, FileSuffix.DELETED, 12)),
        (
            f"{N}-2147483647-18446744073709551615.checkpoint.part",
            PartitionFileName(FileKind.KRAFT_CHECKPOINT_PART, 4711, epoch=2**31 - 1),
        ),
    ],
)
def test_other_names(name: str, expected: PartitionFileName) -> None:
    assert parse_file_name(name) == expected


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        # ProducerStateManager throws NumberFormatException on these.
        ("x.snapshot", None),
        (".snapshot", None),
        (f"{N}-report.snapshot", None),
        ("0_010-report.snapshot", None),
        ("99999999999999999999.snapshot", None),
        ("09223372036854775808.snapshot", None),
        (" 7.snapshot", None),
        # And takes these for snapshots, by the number before the first dot.
        ("0.010-report.snapshot", 0),
        ("7.snapshot", 7),
        ("+7.snapshot", 7),
        ("-7.snapshot", -7),
        (f"{N}.report.snapshot", 4711),
        (f"0{N}.snapshot", 4711),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.snapshot", 42),
        # Two characters of Java, of which neither is a digit (Character.digit of a char).
        ("\U0001d7d8\U0001d7d9.snapshot", None),
    ],
)
def test_misnamed_snapshots(name: str, offset: int | None) -> None:
    assert parse_file_name(name) == PartitionFileName(FileKind.MISNAMED_SNAPSHOT, offset)


@pytest.mark.parametrize(
    ("name", "offset", "suffix"),
    [
        ("x.log", None, FileSuffix.NONE),
        ("5.log", 5, FileSuffix.NONE),
        ("09223372036854775808.index", None, FileSuffix.NONE),
        ("backup.timeindex", None, FileSuffix.NONE),
        ("backup.txnindex", None, FileSuffix.NONE),
        ("x.cleaned", None, FileSuffix.CLEANED),
        ("x.swap", None, FileSuffix.SWAP),
        (f"{N}.snapshot.swap", 4711, FileSuffix.SWAP),
    ],
)
def test_misnamed_segment_files(name: str, offset: int | None, suffix: FileSuffix) -> None:
    assert parse_file_name(name) == PartitionFileName(FileKind.MISNAMED_SEGMENT_FILE, offset, suffix)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "README",
        "x.deleted",
        "leader-epoch-checkpoint.tmp",
        "partition.metadata.tmp",
        f"{N}",
        f"{N}.",
        f"{N}.LOG",
        f"{N}.log.deleted.deleted",
        f"{N}.log ",
        f"{N}.log\n",
        f"{N}.checkpoint",
        "0000-00.checkpoint",
        f"{N}-0000000012.checkpoint.part",
        f"{N}-9999999999.checkpoint",
        "99999999999999999999-0000000000.checkpoint",
        "bootstrap.checkpoint",
    ],
)
def test_unknown_names(name: str) -> None:
    assert parse_file_name(name) is None


def test_every_file_of_the_bundled_partition_directories_is_known() -> None:
    seen = set()
    for path in broker_files("*"):
        if path.is_file() and "remote" not in path.parts and parse_partition_dir_name(path.parent.name):
            name = parse_file_name(path.name)
            assert name is not None, path
            assert name.kind not in (FileKind.MISNAMED_SNAPSHOT, FileKind.MISNAMED_SEGMENT_FILE), path
            seen.add(name.kind)
    everything = set(FileKind)
    assert seen == everything - {
        FileKind.PRODUCER_SNAPSHOT_TEMPORARY,
        FileKind.KRAFT_CHECKPOINT_PART,
        FileKind.MISNAMED_SNAPSHOT,
        FileKind.MISNAMED_SEGMENT_FILE,
    }


@given(
    st.text()
    | st.builds(str.__add__, st.text(alphabet="0123456789-.", max_size=24), st.sampled_from([".log", ".snapshot", ".swap"]))
)
def test_any_text_is_read_or_unknown(name: str) -> None:
    parsed = parse_file_name(name)
    if parsed is not None and parsed.offset is not None and name == name[:20] + parsed.kind.value:
        assert f"{parsed.offset:020d}{parsed.kind.value}" == name


def test_a_very_long_name_costs_nothing() -> None:
    assert parse_file_name("9" * 100_000 + ".snapshot") == PartitionFileName(FileKind.MISNAMED_SNAPSHOT, None)


@pytest.mark.night
def test_parsing_is_fast_enough_for_a_scan() -> None:
    # 800,000 names in a scan of seconds: about 1 microsecond each on an idle machine; ten times that is a wrong algorithm.
    names = [f"{offset:020d}{ending}" for offset in range(5_000) for ending in (".log", ".index", ".timeindex", ".snapshot")]
    best = min(_seconds_to_parse(names) for _ in range(5))
    assert best / len(names) < 10e-6


def _seconds_to_parse(names: list[str]) -> float:
    began = time.process_time()
    for name in names:
        parse_file_name(name)
    return time.process_time() - began


HEX = "0123456789abcdef0123456789abcdef"

DIRECTORIES = [
    ("orders-0", PartitionDirectoryName("orders", 0)),
    ("orders-2147483647", PartitionDirectoryName("orders", 2**31 - 1)),
    ("a-b.c_d-12", PartitionDirectoryName("a-b.c_d", 12)),
    ("orders-1-2", PartitionDirectoryName("orders-1", 2)),
    ("-0", None),
    ("--0", PartitionDirectoryName("-", 0)),
    ("..-0", None),
    (".-0", None),
    ("...-0", PartitionDirectoryName("...", 0)),
    ("__cluster_metadata-0", PartitionDirectoryName("__cluster_metadata", 0)),
    ("orders-delete-3", PartitionDirectoryName("orders-delete", 3)),
    ("orders-0.5-1", PartitionDirectoryName("orders-0.5", 1)),
    ("t" * 249 + "-0", PartitionDirectoryName("t" * 249, 0)),
    ("t" * 250 + "-0", None),
    (f"orders-3.{HEX}-delete", PartitionDirectoryName("orders", 3, DirectoryForm.DELETE, HEX)),
    (f"orders-3.{HEX}-future", PartitionDirectoryName("orders", 3, DirectoryForm.FUTURE, HEX)),
    (f"orders-3.{HEX}-stray", PartitionDirectoryName("orders", 3, DirectoryForm.STRAY, HEX)),
    (f"a-0.b-c-7.{HEX}-delete", PartitionDirectoryName("a-0.b-c", 7, DirectoryForm.DELETE, HEX)),
    # Kafka takes any text for the unique id, and deletes the directory.
    ("orders-3.x-delete", PartitionDirectoryName("orders", 3, DirectoryForm.DELETE, "x")),
    ("orders", None),
    ("orders-", None),
    ("orders-x", None),
    ("orders-01", None),
    ("orders-+1", None),
    ("orders-2147483648", None),
    ("orders-3-delete", None),
    ("orders-3.-delete", None),
    (f"orders-x.{HEX}-delete", None),
    ("or ders-0", None),
    ("ördérs-0", None),
    ("orders-0\n", None),
    ("orders-٣", None),
    ("remote-log-index-cache", None),
    ("", None),
]


@pytest.mark.parametrize(("name", "expected"), DIRECTORIES, ids=[repr(row[0][:60]) for row in DIRECTORIES])
def test_partition_directories(name: str, expected: PartitionDirectoryName | None) -> None:
    assert parse_partition_dir_name(name) == expected


@pytest.mark.parametrize(("form", "may_be_cut"), [("-delete", True), ("-stray", True), ("-future", False)])
def test_a_topic_that_kafka_may_have_cut(form: str, may_be_cut: bool) -> None:
    # logDirNameWithSuffixCappedLength cuts the topic so that the whole name has 255 characters.
    ending = f"-3.{HEX}{form}"
    full = parse_partition_dir_name("t" * (255 - len(ending)) + ending)
    shorter = parse_partition_dir_name("t" * (254 - len(ending)) + ending)
    assert full is not None
    assert full.topic_may_be_cut is may_be_cut
    assert shorter is not None
    assert not shorter.topic_may_be_cut


LOADABLE = {
    True: """t-0|t-007|t--1|t-+1|a b-0|a b;c-3|é-1|..-0|t-2147483647|t-00000000000000000000001|t-0.x-delete|t-0.x-future|t-0.x-stray
        |t-0.-future-delete""",
    False: """t-|-0|-|t|lost+found|backup|payments-0.bak|t-2147483648|t--2147483648|t-0.-delete|t-0-delete|t.x-delete
        |t-0.a b-delete|t-0.x.y-stray|a b-0.x-delete|-0.x-delete|t-.x-delete|t-x.x-delete|-delete|-stray|t-0.x-deleted
        |remote-log-index-cache|.snapshots|kafka-logs|t-1_000|t- 1|t-0x1|a-b.c-d-delete""",
}
"""What ``LocalLog.parseTopicPartitionName`` of Kafka 4.3.1 answered to each."""


@pytest.mark.parametrize("is_loadable", LOADABLE)
def test_directories_with_which_a_broker_starts(is_loadable: bool) -> None:
    names = [name.strip() for name in LOADABLE[is_loadable].split("|")]
    assert [name for name in names if is_loadable_dir_name(name) is not is_loadable] == []


TOPICS = st.text(alphabet="abcXYZ019._-", min_size=1, max_size=249).filter(lambda topic: topic not in (".", ".."))


@given(TOPICS, st.integers(0, 2**31 - 1))
def test_directory_names_round_trip(topic: str, partition: int) -> None:
    assert parse_partition_dir_name(f"{topic}-{partition}") == PartitionDirectoryName(topic, partition)


@given(st.text())
def test_any_directory_name_is_read_or_unknown(name: str) -> None:
    parsed = parse_partition_dir_name(name)
    if parsed is not None and parsed.form is DirectoryForm.PLAIN:
        assert f"{parsed.topic}-{parsed.partition}" == name


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "é", "a\n", "t" * 250])
def test_illegal_topics(topic: str) -> None:
    assert topic_fault(topic) is not None
    assert parse_partition_dir_name(f"{topic}-0") is None


@pytest.mark.parametrize("topic", ["a", "...", "-", "_", "A.b-C_9", "t" * 249])
def test_legal_topics(topic: str) -> None:
    assert topic_fault(topic) is None
