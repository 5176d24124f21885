"""The work of the verb ``cluster image``."""

from __future__ import annotations

from snaprebuild.cli.file_kinds import check_directories
from snaprebuild.cli.options.common import S3Options, quoted
from snaprebuild.cli.options.metadata import voter_log_of
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
    offset: str | None,
    voter: list[str] | None,
    voter_ids: tuple[int, ...] | None,
    topic: list[str] | None,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads the image of the cluster."""
    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_directories([path, *(each for _, each in others)])
    requested_offset = offset if offset in (None, PROVEN) else int(offset or 0)
    result = metadata_image(ImageQuestion(path, requested_offset, others, voter_ids), run_of(s3))
    topics = result.image.topics_named(topic)
    if topic and not topics:
        hint = selection_of(topic, None).hint({each.name for each in result.image.topics.values()})
        raise UsageError(f"no topic matches {' or '.join(map(quoted, topic))}{hint}", path=result.path)
    return ImageView(result, topics)
