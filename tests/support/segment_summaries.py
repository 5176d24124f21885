"""Segments summarised whole."""

from typing import Unpack

from formats.log.batch_headers import SegmentBytes
from snaprebuild.replay.segment_summary import SegmentSummary, SummaryOptions, summarise_pieces


def summarise_segment(source: SegmentBytes, base_offset: int, **options: Unpack[SummaryOptions]) -> SegmentSummary:
    """The summary of a segment without cuts."""
    (whole,) = summarise_pieces(source, base_offset, (), is_last=True, **options)
    return whole
