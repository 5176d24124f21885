"""Copies of bundled metadata logs, each with one defect."""

import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import crc32c
from log_dirs import EMPTY_SNAPSHOT, batch_positions, flip, snapshot_bytes, snapshot_name
from manifests import FIXTURES

from formats.partition.producer_snapshot import ProducerEntry

DIRECTORY = "__cluster_metadata-0"
BUNDLED = {
    "kraft-metadata": FIXTURES / "kraft-metadata" / "logs",
    "kraft-metadata-moved": FIXTURES / "kraft-metadata-moved" / "logs",
    **{f"node{number}": FIXTURES / "kraft-cluster3" / f"node{number}" for number in (1, 2, 3)},
    **{
        name: FIXTURES / "kraft-cluster3" / "old" / name
        for name in ("node2-killed", "node2-replaced-disk", "node3-clean-stopped", "node3-old-topic")
    },
}
"""Log directories."""


def metadata_copy(name: str, to: Path) -> Path:
    """The metadata log of a bundled log directory, below one with its ``meta.properties``, without what is being deleted."""
    (to / name).mkdir(parents=True)
    shutil.copy(BUNDLED[name] / "meta.properties", to / name)
    without = shutil.ignore_patterns("*.deleted")
    return Path(shutil.copytree(BUNDLED[name] / DIRECTORY, to / name / DIRECTORY, ignore=without))


def checkpoint_name(offset: int, epoch: int) -> str:
    """Twenty digits and ten."""
    return f"{offset:020d}-{epoch:010d}.checkpoint"


def remove(directory: Path, *patterns: str) -> None:
    """Files by patterns, at least one of each."""
    for pattern in patterns:
        found = list(directory.glob(pattern))
        assert found, pattern
        for path in found:
            path.unlink()


def newest_segment(node: Path) -> Path:
    """The newest segment of the metadata log of a node."""
    return max((node / DIRECTORY).glob("*.log"))


def torn(node: Path) -> None:
    """Cuts the last batch of the metadata log."""
    log = newest_segment(node)
    os.truncate(log, log.stat().st_size - 20)


def with_bytes_replaced(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes in every batch of a file, and the checksums."""
    original = path.read_bytes()
    assert old in original
    assert len(old) == len(new)
    data = bytearray(original.replace(old, new))
    ends = [*batch_positions(path)[1:], len(data)]
    for begin, end in zip(batch_positions(path), ends, strict=True):
        data[begin + 17 : begin + 21] = struct.pack(">I", crc32c.crc32c(bytes(data[begin + 21 : end])))
    path.write_bytes(data)


def _without_checkpoints(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata-moved", to)
    remove(directory, "*.checkpoint")
    return [directory]


def _without_that_of_the_start(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata-moved", to)
    remove(directory, checkpoint_name(640, 4))
    return [directory]


def _epoch_went_back(to: Path) -> list[Path]:
    directory = metadata_copy("node2", to)
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n3 234\n")
    return [directory]


def _only_that_of_the_start(to: Path) -> list[Path]:
    directory = metadata_copy("node2", to)
    remove(directory, checkpoint_name(315, 4))
    return [directory]


def _end_was_lost(to: Path) -> list[Path]:
    """A metadata log whose end was lost, as checkpoints show it: nothing else is above the end."""
    directory = metadata_copy("kraft-metadata", to)
    remove(directory, f"{357:020d}.log", f"{357:020d}.*index", snapshot_name(396), snapshot_name(531))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n1 0\n2 177\n")
    return [directory]


def _inside_a_batch(to: Path) -> list[Path]:
    """The batch after this checkpoint holds 234 and 235."""
    directory = metadata_copy("node1", to)
    (directory / checkpoint_name(234, 4)).rename(directory / checkpoint_name(235, 4))
    return [directory]


def _of_another_epoch(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata", to)
    (directory / checkpoint_name(353, 2)).rename(directory / checkpoint_name(353, 1))
    return [directory]


def _flipped_bit(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata", to)
    flip(directory / checkpoint_name(484, 3), 1000)
    return [directory]


def _being_written(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata", to)
    (directory / f"{500:020d}-{3:010d}-1234567.checkpoint.part").write_bytes(b"half")
    return [directory]


def _misnamed(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata", to)
    shutil.copy(directory / checkpoint_name(464, 3), directory / "464-3.checkpoint")
    return [directory]


def _middle_is_missing(to: Path) -> list[Path]:
    """No checkpoint is left after the gap."""
    directory = metadata_copy("kraft-metadata", to)
    remove(directory, f"{171:020d}.*", "*-0000000002.checkpoint", "*-0000000003.checkpoint")
    return [directory]


def _producer_in_a_snapshot(to: Path) -> list[Path]:
    directory = metadata_copy("kraft-metadata", to)
    path = directory / snapshot_name(171)
    assert path.read_bytes() == EMPTY_SNAPSHOT
    path.write_bytes(snapshot_bytes([ProducerEntry(7, 0, 0, 100, 0, 1, -1, -1)]))
    return [directory]


def change_batch(directory: Path, offset: int, field: str, value: int) -> None:
    """Sets a field of the header of the batch at an offset, and its checksum."""
    at, form = {"leader_epoch": (12, ">i"), "base_timestamp": (27, ">q"), "max_timestamp": (35, ">q")}[field]
    path = max(each for each in directory.glob("*.log") if int(each.stem) <= offset)
    data = bytearray(path.read_bytes())
    positions = batch_positions(path)
    (begin,) = (each for each in positions if int.from_bytes(data[each : each + 8], "big") == offset)
    end = next((each for each in positions if each > begin), len(data))
    data[begin + at : begin + at + struct.calcsize(form)] = struct.pack(form, value)
    data[begin + 17 : begin + 21] = struct.pack(">I", crc32c.crc32c(bytes(data[begin + 21 : end])))
    path.write_bytes(data)


def rename_feature(directory: Path, checkpoint: str) -> None:
    """A ``FeatureLevelRecord`` (key 12) names another feature, checksums and all."""
    record = b"\x01\x0c\x00\x0e"
    with_bytes_replaced(directory / checkpoint, record + b"share.version", record + b"Share.version")


def _batches_differ(to: Path) -> list[Path]:
    """Above all checkpoints, so that no node can see it in its own directory."""
    one, other = metadata_copy("node1", to), metadata_copy("node3", to)
    change_batch(other, 318, "base_timestamp", 1_700_000_000_000)
    return [one, other]


def _epochs_decrease(to: Path) -> list[Path]:
    directory = metadata_copy("node1", to)
    change_batch(directory, 318, "leader_epoch", 3)
    return [directory]


def _lost_quorum_state(to: Path) -> list[Path]:
    directory = metadata_copy("node1", to)
    remove(directory, "quorum-state")
    return [directory]


def _checkpoint_contradicts(to: Path) -> list[Path]:
    directory = metadata_copy("node1", to)
    rename_feature(directory, checkpoint_name(76, 1))
    return [directory]


def _cut_at_a_batch(to: Path) -> list[Path]:
    """The producer snapshot of the clean stop is there, at 348."""
    directory = metadata_copy("node1", to)
    cut_last_batches(directory, 1)
    return [directory]


def cut_last_batches(directory: Path, count: int) -> None:
    """Cuts the last segment at the end of a batch."""
    log = max(directory.glob("*.log"))
    os.truncate(log, batch_positions(log)[-count])


def _of_another_topic(to: Path) -> list[Path]:
    directory = metadata_copy("node1", to)
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: kJEH2V5MQ3qe3pGZOsqMwA")
    return [directory]


def _of_no_node(to: Path) -> list[Path]:
    directory = metadata_copy("node1", to)
    (directory.parent / "meta.properties").write_bytes(b"")
    return [directory]


def _two_of_one_node(to: Path) -> list[Path]:
    return [metadata_copy("node3", to), metadata_copy("node3-old-topic", to)]


BROKEN: dict[str, Callable[[Path], list[Path]]] = {
    "K1": _without_checkpoints,
    "K2": _without_that_of_the_start,
    "K3": _epoch_went_back,
    "K4": _only_that_of_the_start,
    "K5": _end_was_lost,
    "K6": _inside_a_batch,
    "K7": _of_another_epoch,
    "K8": _flipped_bit,
    "K9": _being_written,
    "K10": _misnamed,
    "K11": _middle_is_missing,
    "K12": _producer_in_a_snapshot,
    "K13": _batches_differ,
    "K14": _epochs_decrease,
    "K15": _lost_quorum_state,
    "K16": _checkpoint_contradicts,
    "K17": _cut_at_a_batch,
    "K18": _of_another_topic,
    "K19": _of_no_node,
    "K20": _two_of_one_node,
}
"""Makers of the directories that violate a rule, and no other."""
