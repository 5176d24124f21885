"""Receipts of the command, and a small log to make one of."""

import json
from pathlib import Path
from typing import Any

from documents import validator_of
from log_dirs import batch, changes, make_log_dir, snapshot_name, tree, write_partition


def steps(receipt: Path) -> list[dict[str, Any]]:
    """Every line, each of the form that the schema gives it."""
    lines = [json.loads(line) for line in receipt.read_text().splitlines()]
    for line in lines:
        validator_of("receipt").validate(line)
    return lines


def what_appeared(before: dict[str, tuple[object, ...]], logs: Path) -> set[str]:
    """Names of files that are new; everything else is as it was."""
    appeared, vanished, changed = changes(before, tree(logs))
    assert (vanished, {name for name in changed if not (logs / name).is_dir()}) == (set(), set())
    return {Path(name).name for name in appeared}


def one_partition(place: Path) -> Path:
    """A log of four segments, one snapshot of which is wrong and to be set aside."""
    logs = make_log_dir(place / "logs", recovery_points={"t-0": 4})
    write_partition(logs / "t-0", {offset: batch(offset, producer_id=7, sequence=offset) for offset in range(4)})
    for offset in range(4):
        (logs / "t-0" / f"{offset:020d}.index").write_bytes(b"")
    (logs / "t-0" / snapshot_name(2)).write_bytes(b"torn")
    return logs
