"""The work of the verb ``cluster image``."""

from __future__ import annotations

from snaprebuild.cli.options.common import S3Options, check_paths
from snaprebuild.cli.options.metadata import voter_log_of
from snaprebuild.cli.render.metadata import ImageView
from snaprebuild.cli.runs.run_settings import run_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.cli.view import View
from snaprebuild.cluster.metadata.image_result import PROVEN, ImageQuestion, metadata_image

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
    check_paths([path, *(each for _, each in others)])
    requested_offset = offset if offset in (None, PROVEN) else int(offset or 0)
    result = metadata_image(ImageQuestion(path, requested_offset, others, voter_ids), run_of(s3))
    return ImageView(result, result.image.topics_named(topic))
