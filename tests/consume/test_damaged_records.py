"""One flipped bit in a generated log: the strict mode ends with an error or is right, the others end, and no offset comes twice."""

import random
from collections import Counter
from pathlib import Path

import pytest
from generated_logs import generate

from formats.errors import FormatError
from snaprebuild.errors import SnaprebuildError
from snaprebuild.library.record_stream import RecordStream, records

ISOLATIONS = ("read_committed", "read_uncommitted", "all")


def rows_of(stream: RecordStream) -> list[tuple[int | None, bytes | None]]:
    columns = ((batch["offset"].to_pylist(), batch["value"].to_pylist()) for batch in stream)
    return [row for offsets, values in columns for row in zip(offsets, values, strict=True)]


def flipped(partition: Path, rng: random.Random) -> None:
    path = rng.choice([path for path in sorted(partition.glob("*.log")) if path.stat().st_size])
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 150), marks=pytest.mark.full)])
def test_a_flipped_bit(seeds: range, tmp_path: Path) -> None:
    outcomes = Counter[str]()
    for seed in seeds:
        log = generate(seed, tmp_path / str(seed))
        flipped(log.partition, random.Random(seed))
        for isolation in ISOLATIONS:
            for mode in ("FAILFAST", "PERMISSIVE", "DROPMALFORMED"):
                stream = records(log.path, isolation=isolation, mode=mode, columns=("offset", "value"), fail_on_data_loss=False)
                try:
                    rows = rows_of(stream)
                except (FormatError, SnaprebuildError):
                    assert mode == "FAILFAST", f"seed {seed}, {isolation}"
                    outcomes["error"] += 1
                    continue
                offsets = [offset for offset, _ in rows if offset is not None]
                assert offsets == sorted(set(offsets)), f"seed {seed}, {isolation}, {mode}"
                outcomes["rows with an error" if len(offsets) < len(rows) else "rows"] += 1
    assert set(outcomes) == {"error", "rows with an error", "rows"}
