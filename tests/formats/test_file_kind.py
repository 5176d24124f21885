"""The kind of a file: by its name, as brokers and remote tiers write it, and by its first bytes."""

import pytest
from fixture_files import broker_files

from formats.partition.file_kind import HEAD_BYTES, KindOfName, kind_of_content, kind_of_name
from formats.partition.file_names import DumpedKind

TEN = "00000000000000000010"
UUID = "L20oNJ0MSsC6VKxY_UASOw"


@pytest.mark.parametrize(
    ("name", "kind", "offset", "epoch"),
    [
        (f"{TEN}.log", DumpedKind.LOG, 10, None),
        (f"{TEN}.log.cleaned", DumpedKind.LOG, 10, None),
        (f"{TEN}.timeindex.cleaned.deleted", DumpedKind.TIME_INDEX, 10, None),
        (f"{TEN}.txnindex", DumpedKind.TRANSACTION_INDEX, 10, None),
        (f"{TEN}.snapshot.tmp", DumpedKind.SNAPSHOT, 10, None),
        (f"{TEN}-{UUID}.snapshot", DumpedKind.SNAPSHOT, 10, None),
        (f"{TEN}-{UUID}.leader_epoch_checkpoint", DumpedKind.LEADER_EPOCH_CHECKPOINT, 10, None),
        (f"{TEN}-0000000003.checkpoint", DumpedKind.KRAFT_CHECKPOINT, 10, 3),
        (f"{TEN}-0000000003-123456.checkpoint.part", DumpedKind.KRAFT_CHECKPOINT, 10, 3),
        ("bootstrap.checkpoint", DumpedKind.KRAFT_CHECKPOINT, None, None),
        ("99999999999999999999.log", DumpedKind.LOG, None, None),
        ("copy.of.10.log", DumpedKind.LOG, None, None),
        ("leader-epoch-checkpoint", DumpedKind.LEADER_EPOCH_CHECKPOINT, None, None),
        ("recovery-point-offset-checkpoint", DumpedKind.OFFSET_CHECKPOINT, None, None),
        ("cleaner-offset-checkpoint", DumpedKind.OFFSET_CHECKPOINT, None, None),
        ("replication-offset-checkpoint.tmp", DumpedKind.OFFSET_CHECKPOINT, None, None),
        ("partition.metadata", DumpedKind.PARTITION_METADATA, None, None),
        ("meta.properties", DumpedKind.META_PROPERTIES, None, None),
        (".kafka_cleanshutdown", DumpedKind.CLEAN_SHUTDOWN, None, None),
        ("quorum-state", DumpedKind.QUORUM_STATE, None, None),
        ("server.log.2026", None, None, None),
        ("", None, None, None),
    ],
)
def test_names(name: str, kind: DumpedKind | None, offset: int | None, epoch: int | None) -> None:
    assert kind_of_name(name) == KindOfName(kind, offset, epoch)


# A checkpoint begins as a log does; an index has nothing of its own, and neither has a file without entries.
BY_CONTENT = {kind: kind for kind in DumpedKind} | {DumpedKind.KRAFT_CHECKPOINT: DumpedKind.LOG}
UNTOLD = (DumpedKind.OFFSET_INDEX, DumpedKind.TIME_INDEX, DumpedKind.TRANSACTION_INDEX)


def test_content_says_what_the_names_of_all_bundled_files_say() -> None:
    seen = set()
    for path in broker_files("*"):
        kind = kind_of_name(path.name).kind if path.is_file() else None
        if kind is None:
            continue
        data = path.read_bytes()
        reported = kind_of_content(data[:HEAD_BYTES], len(data))
        is_empty = data in (b"", b"0\n0\n")
        assert reported is (None if kind in UNTOLD or is_empty else BY_CONTENT[kind]), path
        seen.add(kind if reported else None)
    assert seen == {None, *DumpedKind} - set(UNTOLD)
