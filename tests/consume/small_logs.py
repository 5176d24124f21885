"""Small logs of one partition, ``orders-0``, batch by batch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from generated_logs import write_checkpoints
from log_dirs import TRANSACTIONAL, batch, write_partition


def plain(offset: int, count: int = 1) -> bytes:
    return batch(offset, count=count, timestamp=1_000 + offset)


def transactional(offset: int, producer: int, count: int = 1) -> bytes:
    return batch(offset, producer_id=producer, attributes=TRANSACTIONAL, count=count, timestamp=1_000 + offset)


def log_dir(root: Path, segments: Mapping[int, bytes], **checkpoints: Any) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    write_checkpoints(root, **checkpoints)
    write_partition(root / "orders-0", segments)
    return root
