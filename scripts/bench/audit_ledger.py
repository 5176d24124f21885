#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""The cost of an audit in turns without the reads of segments: bytes of the ledger, time to open it and to judge with it.

``scripts/bench/audit_ledger.py`` makes segments of several numbers of producers, keeps their summaries, and opens the ledger. It prints
the figures for each segment, and what they come to in a store of 2 PB (docs/internals/scale.md).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from formats.log.batch_headers import BytesSegment
from snaprebuild.replay.segment_summary import summarise_pieces
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.storage.store import FileIdentity
from snaprebuild.tier.ledger.ledger_file import AuditLedger, CopyKey

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">i2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("record_count", ">i4"),
    ]
)

RECORDS = 10
BATCHES = 20_000
STORE_BYTES = 2 * 10**15
SEGMENT_BYTES = 2**30
CORES = 4
DAYS = 30


def segment(producers: int, base_offset: int) -> bytes:
    """Batches of producers in turn, without records, as far as a reader of headers sees."""
    batches = np.zeros(BATCHES, dtype=HEADER)
    numbers = np.arange(BATCHES)
    batches["base_offset"] = base_offset + numbers * RECORDS
    batches["length"] = HEADER.itemsize - 12
    batches["magic"] = 2
    batches["last_offset_delta"] = RECORDS - 1
    rng = np.random.default_rng(producers)
    batches["base_timestamp"] = batches["max_timestamp"] = 1_795_000_000_000 + np.cumsum(rng.integers(0, 500, BATCHES))
    writers = rng.permutation(np.resize(rng.choice(10_000_000, producers, replace=False), BATCHES))
    batches["producer_id"] = writers
    order = np.argsort(writers, kind="stable")
    starts = np.flatnonzero(np.diff(writers[order], prepend=-1))
    rank = np.arange(BATCHES) - np.repeat(starts, np.diff(np.append(starts, BATCHES)))
    batches["base_sequence"][order] = rank * RECORDS
    batches["record_count"] = RECORDS
    return batches.tobytes()


MANIFEST_BYTES = 3_000
ENTRY_BYTES = 41
"""Bytes of one producer's entry in a snapshot."""


def measured(path: Path, producers: int, segments: int) -> tuple[float, float, float, float]:
    """Bytes of the ledger, and seconds to keep, to open and to take each segment with its manifest and snapshot."""
    data = segment(producers, 0)
    pieces = summarise_pieces(BytesSegment(data), 0, (), is_last=False, check_crc=False, with_first_events=True)
    task = ReadTask("/store/a.log", None, 0, FileIdentity(1, 1, 1), check_crc=False)
    manifest = np.random.default_rng(1).bytes(MANIFEST_BYTES)
    snapshot = np.random.default_rng(2).bytes(ENTRY_BYTES * producers)
    keys = [CopyKey(f"{number:022d}", "0" * 32) for number in range(segments)]
    with AuditLedger.open(str(path), "/store") as ledger:
        began = time.perf_counter()
        for key in keys:
            ledger.keep_range(key, "rsm-manifest:all", MANIFEST_BYTES, manifest)
            ledger.keep_segment(key, task, pieces)
            ledger.keep_range(key, "indexes:0+0", len(snapshot), snapshot)
        kept = time.perf_counter() - began
    size_bytes = path.stat().st_size
    began = time.perf_counter()
    with AuditLedger.open(str(path), "/store") as ledger:
        opened = time.perf_counter() - began
        began = time.perf_counter()
        for key in keys:
            assert ledger.range(key, "rsm-manifest:all") is not None
            assert ledger.pieces(key, task) is not None
            assert ledger.range(key, "indexes:0+0") is not None
        taken = time.perf_counter() - began
    return size_bytes / segments, kept / segments, opened / segments, taken / segments


def main() -> None:
    """Prints a row for each number of producers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--segments", type=int, default=500, help="kept for each number of producers")
    segments = parser.parse_args().segments
    count = STORE_BYTES // SEGMENT_BYTES
    rate = STORE_BYTES / (DAYS * 86_400)
    print(
        f"2 PB are {count:,} segments of 1 GiB; in {DAYS} days {rate / 1e6:.0f} MB/s, {rate / CORES / 1e6:.0f} MB/s for each core"
    )
    for producers in (10, 100, 1_000):
        with tempfile.TemporaryDirectory() as directory:
            size_bytes, *seconds = measured(Path(directory, "ledger"), producers, segments)
        kept, opened, taken = seconds
        print(f"{producers:,} producers: {size_bytes:,.0f} bytes, {kept * 1e3:.2f} ms to keep, {taken * 1e3:.2f} ms to take")
        print(
            f"  2 PB: {size_bytes * count / 1e9:.1f} GB, {opened * count / 60:.1f} min to open, {taken * count / 3600:.1f} h to take"
        )


if __name__ == "__main__":
    main()
