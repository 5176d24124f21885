"""Producer snapshots written by the grammar: the reference for ``write_entries``."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import asdict

from formats.checksum import crc32c
from formats.partition.producer_snapshot import CRC_START, SNAPSHOT, VERSION, ProducerEntry


def build_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The bytes of a snapshot, by the grammar: the reference for ``write_entries``."""
    fields = [asdict(entry) for entry in entries]
    body = bytes(SNAPSHOT.build({"version": VERSION, "crc": 0, "entry_count": len(fields), "entries": fields}))
    return body[:2] + crc32c(body[CRC_START:]).to_bytes(4, "big") + body[CRC_START:]
