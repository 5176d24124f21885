"""The work of the verb ``inspect dump``."""

from __future__ import annotations

from typing import NoReturn

from formats.limits import INT64_MAX, INT64_MIN
from formats.partition.file_names import DumpedKind
from snaprebuild.cli.file_kinds import DUMPED, check_kind
from snaprebuild.cli.options.common import S3Options, check_paths, offsets_range
from snaprebuild.cli.output import emit_streamed_and_exit
from snaprebuild.cli.render.dump import write_dumps
from snaprebuild.cli.runs.stores import locations_of, stores_of
from snaprebuild.cli.verb import OutputOptions
from snaprebuild.errors import UsageError
from snaprebuild.findings import Finding
from snaprebuild.inspect.dump import open_dumps
from snaprebuild.inspect.dump_items import DumpRequest

__all__ = ["run_inspect_dump"]


def run_inspect_dump(
    *,
    files: list[str] | None,
    kind: DumpedKind | None,
    deep: bool,
    payload: bool,
    offsets: str | None,
    out: OutputOptions,
    s3: S3Options,
) -> NoReturn:
    """Prints the contents of files, and ends the command."""
    out.begin()
    if not files:
        raise UsageError("inspect dump: no FILE is named")
    check_paths(files)
    for path in files if kind is None else ():
        check_kind(path, DUMPED)
    locations = locations_of(files)
    stores = stores_of(s3)
    offset_from, offset_to = offsets_range(offsets)
    request = DumpRequest(
        kind,
        deep=deep or payload,
        payload=payload,
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
