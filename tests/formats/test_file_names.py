"""Names of partition files and directories, as Kafka writes and reads them."""

import pytest
from fixture_files import broker_files

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

KNOWN = {
    f"{N}.log": PartitionFileName(FileKind.LOG, 4711),
    f"{N}.index": PartitionFileName(FileKind.OFFSET_INDEX, 4711),
    f"{N}.timeindex": PartitionFileName(FileKind.TIME_INDEX, 4711),
    f"{N}.txnindex": PartitionFileName(FileKind.TRANSACTION_INDEX, 4711),
    f"{N}.snapshot": PartitionFileName(FileKind.PRODUCER_SNAPSHOT, 4711),
    f"{N}.snapshot.deleted": PartitionFileName(FileKind.PRODUCER_SNAPSHOT, 4711, FileSuffix.DELETED),
    f"{N}.snapshot.tmp": PartitionFileName(FileKind.PRODUCER_SNAPSHOT_TEMPORARY, 4711),
    f"{N}.log.cleaned": PartitionFileName(FileKind.LOG, 4711, FileSuffix.CLEANED),
    f"{N}.txnindex.swap": PartitionFileName(FileKind.TRANSACTION_INDEX, 4711, FileSuffix.SWAP),
    f"{LAST}.log": PartitionFileName(FileKind.LOG, 2**63 - 1),
    "leader-epoch-checkpoint": PartitionFileName(FileKind.LEADER_EPOCH_CHECKPOINT),
    "partition.metadata": PartitionFileName(FileKind.PARTITION_METADATA),
    "quorum-state": PartitionFileName(FileKind.QUORUM_STATE),
    f"{N}-0000000012.checkpoint": PartitionFileName(FileKind.KRAFT_CHECKPOINT, 4711, epoch=12),
    f"{N}-0000000012.checkpoint.deleted": PartitionFileName(FileKind.KRAFT_CHECKPOINT, 4711, FileSuffix.DELETED, 12),
    f"{N}-2147483647-18446744073709551615.checkpoint.part": PartitionFileName(
        FileKind.KRAFT_CHECKPOINT_PART, 4711, epoch=2**31 - 1
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_names_of_kafka(name: str) -> None:
    assert parse_file_name(name) == KNOWN[name]


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
    ("name", "offset"),
    [
        # ProducerStateManager throws NumberFormatException on these.
        ("x.snapshot", None),
        (f"{N}-report.snapshot", None),
        ("99999999999999999999.snapshot", None),
        (" 7.snapshot", None),
        # And takes these for snapshots, by the number before the first dot.
        ("0.010-report.snapshot", 0),
        ("7.snapshot", 7),
        ("-7.snapshot", -7),
        (f"{N}.report.snapshot", 4711),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٢.snapshot", 42),
        # Two characters of Java, of which neither is a digit (Character.digit of a char).
        ("\U0001d7d8\U0001d7d9.snapshot", None),
        ("22\U0001d7d8.snapshot", None),
    ],
)
def test_misnamed_snapshots(name: str, offset: int | None) -> None:
    assert parse_file_name(name) == PartitionFileName(FileKind.MISNAMED_SNAPSHOT, offset)


@pytest.mark.parametrize(
    ("name", "offset", "suffix"),
    [
        ("x.log", None, FileSuffix.NONE),
        ("09223372036854775808.index", None, FileSuffix.NONE),
        ("backup.txnindex", None, FileSuffix.NONE),
        ("x.cleaned", None, FileSuffix.CLEANED),
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
        "leader-epoch-checkpoint.tmp",
        f"{N}",
        f"{N}.",
        f"{N}.log.deleted.deleted",
        f"{N}.log\n",
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


def test_a_very_long_name_costs_nothing() -> None:
    assert parse_file_name("9" * 100_000 + ".snapshot") == PartitionFileName(FileKind.MISNAMED_SNAPSHOT, None)


HEX = "0123456789abcdef0123456789abcdef"

DIRECTORIES = [
    ("orders-0", PartitionDirectoryName("orders", 0)),
    ("orders-1-2", PartitionDirectoryName("orders-1", 2)),
    ("-0", None),
    ("--0", PartitionDirectoryName("-", 0)),
    ("..-0", None),
    ("orders-0.5-1", PartitionDirectoryName("orders-0.5", 1)),
    ("t" * 249 + "-0", PartitionDirectoryName("t" * 249, 0)),
    ("t" * 250 + "-0", None),
    (f"orders-3.{HEX}-delete", PartitionDirectoryName("orders", 3, DirectoryForm.DELETE, HEX)),
    (f"orders-3.{HEX}-stray", PartitionDirectoryName("orders", 3, DirectoryForm.STRAY, HEX)),
    (f"a-0.b-c-7.{HEX}-delete", PartitionDirectoryName("a-0.b-c", 7, DirectoryForm.DELETE, HEX)),
    # Kafka takes any text for the unique id, and deletes the directory.
    ("orders-3.x-delete", PartitionDirectoryName("orders", 3, DirectoryForm.DELETE, "x")),
    ("orders-", None),
    ("orders-x", None),
    ("orders-01", None),
    ("orders-2147483648", None),
    ("orders-3.-delete", None),
    (f"orders-x.{HEX}-delete", None),
    ("or ders-0", None),
    ("ördérs-0", None),
    ("orders-٣", None),
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
"""Names by the answer of ``LocalLog.parseTopicPartitionName`` of Kafka 4.3.1."""


@pytest.mark.parametrize("is_loadable", LOADABLE)
def test_directories_with_which_a_broker_starts(is_loadable: bool) -> None:
    names = [name.strip() for name in LOADABLE[is_loadable].split("|")]
    assert [name for name in names if is_loadable_dir_name(name) is not is_loadable] == []


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "é", "a\n", "t" * 250])
def test_illegal_topics(topic: str) -> None:
    assert topic_fault(topic) is not None
    assert parse_partition_dir_name(f"{topic}-0") is None


@pytest.mark.parametrize("topic", ["a", "...", "-", "_", "A.b-C_9", "t" * 249])
def test_legal_topics(topic: str) -> None:
    assert topic_fault(topic) is None
    assert parse_partition_dir_name(f"{topic}-2147483647") == PartitionDirectoryName(topic, 2**31 - 1)
