"""The work of the verb ``cluster image``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options, SelectionOptions
from snaprebuild.cli.options.metadata import voter_logs_of
from snaprebuild.cli.render.metadata import ImageView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.runs.sources import selection_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.metadata.image_result import PROVEN, ImageQuestion, metadata_image
from snaprebuild.errors import UsageError

__all__ = ["run_cluster_image"]


def run_cluster_image(
    *,
    path: str,
    metadata_offset: int | None,
    proven_only: bool,
    voter: list[str] | None,
    voter_ids: tuple[int, ...] | None,
    partitions: SelectionOptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads the image of the cluster."""
    out.begin()
    others = voter_logs_of(voter)
    check_directories([path])
    if proven_only and metadata_offset is not None:
        raise UsageError("--proven-only chooses the last offset itself: --metadata-offset does not go with it")
    requested_offset = PROVEN if proven_only else metadata_offset
    result = metadata_image(ImageQuestion(path, requested_offset, others, voter_ids), run_of(s3))
    selection = selection_of(partitions)
    topics = result.image.selected_topics(selection)
    known = [(topic.name, number) for topic in result.image.topics.values() for number in topic.partitions]
    if selection.is_narrowed and not topics:
        raise UsageError(selection.why_none(known), path=result.path)
    absent = selection.absent_findings([f"{topic}-{number}" for topic, number in known], result.path)
    return ImageView(result, topics, absent)
