"""The verb ``cluster history``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from formats.limits import INT32_MAX, INT64_MAX
from snaprebuild.cli.options.common import S3Options, WholeNumber, check_directories, moment_ms, quoted
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.metadata import MetadataPath, QuorumAssumptions, VoterLogs, voter_log_of
from snaprebuild.cli.verb import OutputOptions, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.cluster.metadata.history import LogPoint

__all__ = ["cluster_history"]


@verb()
def cluster_history(
    *,
    path: MetadataPath,
    topic: Annotated[
        str | None,
        option(
            "--topic",
            metavar="NAME",
            short="Every topic that had this name",
            default="none",
        ),
    ] = None,
    partition: Annotated[
        int | None,
        option(
            "--partition",
            metavar="N",
            click_type=WholeNumber(0, INT32_MAX),
            short="Partition of the topic",
            default="all",
        ),
    ] = None,
    broker: Annotated[
        int | None,
        option(
            "--broker",
            metavar="ID",
            click_type=WholeNumber(0, INT32_MAX),
            short="Show the registrations of this broker or controller, and how many partitions it leads",
            default="none",
        ),
    ] = None,
    since: Annotated[
        str | None,
        option(
            "--from",
            metavar="OFFSET|TIME",
            short="First offset or time (ISO 8601, UTC without a zone) of the history; what was before is one entry",
            default="the start of the log",
        ),
    ] = None,
    until: Annotated[
        str | None,
        option(
            "--to",
            metavar="OFFSET|TIME",
            short="Last offset or time of the history",
            default="the end of the log",
        ),
    ] = None,
    voter: VoterLogs = None,
    assumed: QuorumAssumptions,
    out: OutputOptions,
    s3: S3Options,
) -> View:
    """Reads only: the history of a topic's partitions (--topic) or of a broker (--broker), as the metadata log has it.

    DIR is __cluster_metadata-0, a copy of it under any name, or a directory above that holds one, also as s3://BUCKET/PREFIX.
    The history begins with the log, or with the oldest whole checkpoint at its beginning. A chart shows who led and who was in
    sync, the table below it each change; --from and --to choose a part. A topic that was deleted and created again is another
    one, with another id.
    """
    from snaprebuild.cli.render.metadata import HistoryView
    from snaprebuild.cluster.metadata.history import HistoryQuestion, metadata_history

    out.begin()
    others = tuple(voter_log_of(each) for each in voter or ())
    check_directories([path, *(each for _, each in others)])
    if topic is None and broker is None:
        raise UsageError("name a --topic, a --broker, or both")
    if topic is None and partition is not None:
        raise UsageError("--partition belongs to a --topic")
    begin_at = log_point_of("--from", since)
    end_at = log_point_of("--to", until)
    question = HistoryQuestion(path, topic, partition, broker, begin_at, end_at, others, assumed.voters)
    return HistoryView(metadata_history(question, s3.run()))


def log_point_of(option: str, text: str | None) -> LogPoint | None:
    """An offset or a time.

    Raises:
        UsageError: it is neither.
    """
    from snaprebuild.cluster.metadata.history import LogPoint

    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        if len(text) > 19 or int(text) > INT64_MAX:
            raise UsageError(f"{option}: expected an offset up to {INT64_MAX}, found {quoted(text)}")
        return LogPoint(int(text))
    return LogPoint(None, moment_ms(option, text))
