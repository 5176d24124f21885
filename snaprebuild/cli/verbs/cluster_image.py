"""The verb ``cluster image``."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import S3Options, Topic, quoted
from snaprebuild.cli.options.metadata import MetadataPath, QuorumAssumptions, VoterLogs, voter_log_of
from snaprebuild.cli.verb import OutputOptions, Result, verb

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.image_model import MetadataImage, TopicImage

__all__ = ["cluster_image"]


class At(click.ParamType):  # type: ignore[type-arg]  # generic in recent releases of click only
    """An offset, or the word for the last one that is proven."""

    name = "offset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The text; a usage error where it is neither."""
        text = str(value)
        if text != "proven" and not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) <= INT64_MAX):
            self.fail(f"expected an offset or 'proven', found {quoted(text)}", param, ctx)
        return text


@verb()
def cluster_image(
    *,
    path: MetadataPath,
    at: Annotated[
        str | None,
        typer.Option(
            "--offset",
            metavar="OFFSET",
            click_type=At(),
            help="Last offset to use, or 'proven' for the last offset that is proven to be committed. Default: all of the log.",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    topic: Topic = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows the cluster as a metadata log describes it, and how much of that is proven to be committed.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX.
    The image is the newest whole checkpoint and the log after it: brokers, controllers, topics with their partitions, features,
    configurations, ACLs, credentials, quotas. Secrets are masked as a broker masks them. The end of one log may not be
    committed. Proven is what a checkpoint holds, and what the logs of a majority of the voters share (--voter).
    """
    from snaprebuild.cli.options.common import check_paths
    from snaprebuild.cli.render.metadata import image_document
    from snaprebuild.cli.render.metadata_tables import print_image
    from snaprebuild.cluster.metadata.image_result import PROVEN, ImageQuestion
    from snaprebuild.cluster.metadata.image_result import metadata_image as look

    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_paths([path, *(each for _, each in others)])
    question = ImageQuestion(path, at if at in (None, PROVEN) else int(at or 0), others, assumed.voters)
    result = look(question, s3.run())
    shown_topics = _selected(result.image, topic)
    return Result(lambda: image_document(result, shown_topics), result.findings, lambda: print_image(result, shown_topics))


def _selected(image: MetadataImage, patterns: list[str] | None) -> list[TopicImage]:
    topics = sorted(image.topics.values(), key=lambda each: (each.name, each.topic_id))
    return [each for each in topics if not patterns or any(fnmatch.fnmatchcase(each.name, pattern) for pattern in patterns)]
