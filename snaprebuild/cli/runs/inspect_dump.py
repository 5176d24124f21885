"""The work of the verb ``inspect dump``."""

from __future__ import annotations

from typing import NoReturn

from formats.broker.kafka_releases import catalogued_releases
from formats.limits import INT64_MAX, INT64_MIN
from formats.partition.file_names import DumpedKind
from snaprebuild.broker.releases import parse_release
from snaprebuild.cli.file_kinds import DUMPED, check_kind
from snaprebuild.cli.options.common import S3Options, check_paths, offsets_range, quoted
from snaprebuild.cli.output import emit_streamed_and_exit
from snaprebuild.cli.render.dump import write_dumps
from snaprebuild.cli.runs.run_settings import locations_of, stores_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.inspect.decoder_names import Decoder, MinorRelease
from snaprebuild.inspect.dump import open_dumps
from snaprebuild.inspect.dump_items import DumpRequest

__all__ = ["run_inspect_dump"]

FIRST_FORMS: MinorRelease = (2, 7)
"""The first release whose texts of decoded records are known."""


def run_inspect_dump(
    *,
    files: list[str] | None,
    kind: DumpedKind | None,
    deep: bool,
    payload: bool,
    decoder: Decoder | None,
    kafka_release: str | None,
    offsets: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> NoReturn:
    """Prints the contents of files, and ends the command."""
    out.begin()
    if not files:
        raise UsageError("inspect dump: no FILE is named")
    check_paths(files)
    if kind is None:
        for path in files:
            check_kind(path, DUMPED)
    locations = locations_of(files)
    stores = stores_of(s3)
    offset_from, offset_to = offsets_range(offsets)
    request = DumpRequest(
        kind,
        deep=deep or payload or decoder is not None,
        payload=payload,
        decoder=decoder,
        release=_decoded_release(kafka_release, decoder),
        offset_from=INT64_MIN if offset_from is None else offset_from,
        offset_to=INT64_MAX if offset_to is None else offset_to,
    )
    findings: list[Finding] = []
    emit_streamed_and_exit(
        lambda: write_dumps(
            open_dumps(locations, request, stores), findings, as_json=out.as_json, payload=request.payload, saved=out.report
        ),
        findings,
        everything=out.everything,
    )


def _decoded_release(text: str | None, decoder: Decoder | None) -> MinorRelease | None:
    """The release whose form decoded records have; None for the newest.

    Raises:
        UsageError: nothing is decoded, the forms of the release are not known, or its kafka-dump-log has no such decoder.
    """
    if text is None:
        return None
    if decoder is None:
        raise UsageError("--kafka-release: it chooses the form of decoded records; use it with --decoder")
    newest = tuple(map(int, list(catalogued_releases())[-1].split(".")))
    release = parse_release(text)
    if release is None or not FIRST_FORMS <= release[:2] <= newest:
        first, last = (".".join(map(str, each)) for each in (FIRST_FORMS, newest))
        raise UsageError(f"--kafka-release: expected a release from {first} to {last}, such as 3.9.1; found {quoted(text)}")
    minor = release[:2]
    if decoder.first_release > minor:
        first = ".".join(map(str, decoder.first_release))
        raise UsageError(
            f"--kafka-release: decoded records of {decoder.value} are shown as {first} or newer prints them; found {quoted(text)}"
        )
    return minor
