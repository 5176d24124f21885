"""The answer to -6 where nothing was uploaded: KIP-1023 says -1, a broker of 4.3 its log start offset (reference: KIP-1023, UnifiedLog)."""

from __future__ import annotations

from formats.partition.checkpoint_file import LeaderEpochEntry
from snaprebuild.followers.list_offsets import LogOffsets, pending_upload_of_proposal


def test_the_proposal_answers_nothing_where_nothing_was_uploaded() -> None:
    log = LogOffsets(True, 150, 150, -1, 400, 400, 400, (LeaderEpochEntry(0, 150),), 0)
    assert pending_upload_of_proposal(log).offset == -1
