"""Remote storage made by hand, in the layout of LocalTieredStorage, from the definition of its names and files."""

import base64
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOPIC_ID = bytes(range(1, 17))

Epochs = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Copy:
    """A copy of a segment.

    Attributes:
        base: offset of the segment.
        log: its bytes.
        epochs: all leader epochs of the log up to its end.
        snapshot: the file.
        largest_timestamp: its time index names it; None for an empty index.
        largest_offset: of the record with that timestamp, from the base on.
    """

    base: int
    log: bytes
    epochs: Epochs
    snapshot: bytes
    largest_timestamp: int | None = None
    largest_offset: int = 0


def id_text(uuid: bytes) -> str:
    """Kafka's text of an id."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def epochs_text(epochs: Epochs) -> str:
    """A leader epoch checkpoint."""
    return f"0\n{len(epochs)}\n" + "".join(f"{epoch} {start}\n" for epoch, start in epochs)


def copied(path: Path, letter: str) -> None:
    """Copies a file of a copy for another id; a manifest names that id, too."""
    old, new = path.name[21:43], f"{letter}{path.name[22:43]}"
    data = path.read_bytes()
    if path.suffix == ".rsm-manifest":
        data = data.replace(old.encode(), new.encode())
    path.with_name(path.name.replace(old, new)).write_bytes(data)


def write_tier(root: Path, topic: str, partition: int, copies: Sequence[Copy]) -> Path:
    """Six files a copy, as far as there are any; ids are those of the place in the row."""
    directory = root / "kafka-tiered-storage" / f"{topic}-{partition}-{id_text(TOPIC_ID)}"
    directory.mkdir(parents=True)
    for number, copy in enumerate(copies, start=1):
        stem = f"{copy.base:020d}-{id_text(bytes((number,)) * 16)}"
        files = {
            ".log": copy.log,
            ".index": b"",
            ".timeindex": b""
            if copy.largest_timestamp is None
            else struct.pack(">qi", copy.largest_timestamp, copy.largest_offset),
            ".leader_epoch_checkpoint": epochs_text(copy.epochs).encode(),
            ".snapshot": copy.snapshot,
        }
        for suffix, data in files.items():
            (directory / f"{stem}{suffix}").write_bytes(data)
    return root
