"""The verb ``verify``."""

from __future__ import annotations

from typing import Annotated

from snaprebuild.cli.engine_choice import engine_of
from snaprebuild.cli.options.common import (
    AsOf,
    ExpirationMs,
    Jobs,
    Offset,
    Partition,
    Paths,
    S3Options,
    ServerProperties,
    Topic,
    check_paths,
    clock_of,
    open_selected,
    selection_of,
)
from snaprebuild.cli.options.description import option
from snaprebuild.cli.options.engine import CachingEngine
from snaprebuild.cli.options.io_limits import Load
from snaprebuild.cli.options.kafka_release import KafkaRelease, release_of
from snaprebuild.cli.options.rebuild import Crc, CrcOption
from snaprebuild.cli.streams import bytes_progress
from snaprebuild.cli.verb import MeasuredOutput, verb
from snaprebuild.cli.view import View
from snaprebuild.errors import UsageError

__all__ = ["verify"]


@verb(Load)
def verify(
    *,
    paths: Paths = None,
    server_properties: ServerProperties = None,
    crc: CrcOption = Crc.CHECK,
    as_of: AsOf = None,
    expiration_ms: ExpirationMs = None,
    topic: Topic = None,
    partition: Partition = None,
    offsets: Offset = None,
    kafka_release: KafkaRelease = None,
    jobs: Jobs = None,
    engine: CachingEngine,
    receipt: Annotated[
        str | None,
        option(
            "--receipt",
            metavar="FILE",
            short="Check the files of this receipt instead of PATH: kept, removed or replaced, and why",
            details="Replays nothing.",
            default="none",
        ),
    ] = None,
    out: MeasuredOutput,
    s3: S3Options,
) -> View:
    """Reads only: replays each partition and compares every snapshot on disk with the result.

    PATH is a partition directory, a log directory, or any directory above them, also as s3://BUCKET/PREFIX; several may be
    named. Every segment is read, from the first one on disk. Exit code 1 if a snapshot is proven wrong, or is suspect to
    `scan` and not proven right. A missing one is counted, and is no finding. It also reports what the broker does at its
    next start, as `scan` does.
    """
    check_paths(paths, receipt=receipt)
    out.begin(receipt=receipt)
    if receipt is not None:
        if paths or server_properties is not None or topic or partition or offsets is not None:
            raise UsageError("--receipt names the files by itself: no PATH, --server-properties or selection goes with it")
        if out.metrics is not None:
            raise UsageError("--receipt compares no snapshot with the log: --metrics does not go with it")
        return _receipt_view(receipt, details=out.everything)
    from snaprebuild.cli.render.verify import VerifyView
    from snaprebuild.cluster.judged_verify import judged_verify

    release = release_of(kafka_release)
    selection = selection_of(topic, partition, offsets)
    source = open_selected(paths, server_properties, selection, s3)
    clock = clock_of(source, as_of, expiration_ms)
    size_bytes = source.size_bytes
    with engine_of(engine) as chosen, bytes_progress("verifying", size_bytes) as progress:
        chosen.keep_effects(source.partitions, s3.settings())
        judged = judged_verify(
            source,
            s3.run(clock=clock, jobs=jobs, engine=chosen.reading(size_bytes, progress)),
            release=release,
            selection=selection,
            check_crc=crc is Crc.CHECK,
            progress=progress,
        )
    return VerifyView(judged, chosen.cache, details=out.everything)


def _receipt_view(path: str, *, details: bool) -> View:
    from snaprebuild.cli.render.receipts import ReceiptView
    from snaprebuild.snapshots.receipts.receipt_reader import load_receipt
    from snaprebuild.snapshots.receipts.verify_receipt import verify_receipt

    return ReceiptView(verify_receipt(load_receipt(path)), details=details)
