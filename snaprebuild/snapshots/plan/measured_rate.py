"""The speed of a rebuild, measured on a sample of what it would read."""

from __future__ import annotations

import time
from collections.abc import Sequence

from formats.errors import FormatError
from formats.log.batch_headers import HeaderReader
from snaprebuild.errors import ChangedFileError, ReadFailedError
from snaprebuild.replay.block_effect import effect_of_block
from snaprebuild.snapshots.plan.plan_model import PartitionPlan

__all__ = ["measured_rate"]

RATE_SAMPLE_BYTES = 32 << 20


def measured_rate(plans: Sequence[PartitionPlan], check_crc: bool) -> float | None:
    """Bytes a second, measured on the beginning of the largest segment that would be read; None if nothing can be read."""
    candidates = [
        (segment, plan.source.directory)
        for plan in plans
        for segment in plan.source.directory.segments[plan.replay_index : plan.stop_index]
        if segment.size_bytes
    ]
    if not candidates:
        return None
    segment, directory = max(candidates, key=lambda each: (each[0].size_bytes, each[1].file_path(each[0].log.name)))
    started = time.perf_counter()
    read = 0
    try:
        with directory.open_segment(segment) as source:
            reader = HeaderReader(source, check_crc=check_crc)
            for block in reader:
                effect_of_block(block)
                read = reader.bytes_read
                if read >= RATE_SAMPLE_BYTES:
                    break
    except (ReadFailedError, ChangedFileError, FormatError):
        return None
    return read / max(time.perf_counter() - started, 1e-6) if read else None
