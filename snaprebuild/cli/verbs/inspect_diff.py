"""The verb ``inspect diff``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from formats.limits import INT64_MAX
from snaprebuild.cli.options.common import Duration, S3Options, as_of_ms, check_paths, locations_of
from snaprebuild.cli.verb import OutputOptions, Result, verb
from snaprebuild.errors import UsageError

if TYPE_CHECKING:
    from snaprebuild.documents import inspect as doc
    from snaprebuild.inspect.diff import SnapshotDiff
    from snaprebuild.snapshots.engine.clock import Clock

__all__ = ["inspect_diff"]

ENTRIES_SHOWN_MAX = 10


@verb()
def inspect_diff(
    *,
    files: Annotated[list[str] | None, typer.Argument(metavar="A B", hidden=True)] = None,
    as_of: Annotated[
        str | None,
        typer.Option(
            "--as-of",
            metavar="TIME",
            help="Leave out what has expired at this time: ISO 8601 (UTC without a zone), milliseconds since 1970, or now. "
            "Default: now with --expiration-ms, else nothing is left out.",
        ),
    ] = None,
    expiration_ms: Annotated[
        int | None,
        typer.Option(
            "--expiration-ms",
            metavar="MS",
            click_type=Duration(1, INT64_MAX),
            help="Milliseconds after which the broker forgets an idle producer. Risk: less than the broker uses hides "
            "producers that it would load. Default: 86400000 (one day).",
        ),
    ] = None,
    out: OutputOptions,
    s3: S3Options,
) -> Result:
    """Reads only: shows the producers in which two snapshots differ, and what B would cost if A is right.

    A and B are snapshot files of any name, also as s3://BUCKET/KEY. Their entries are compared as a map: the order has no
    meaning. With --as-of or --expiration-ms, entries are left out that a broker drops when it loads the files at that moment. Without
    them every entry counts. Exit code 1 if the snapshots differ, 4 if one is damaged.
    """
    from snaprebuild.inspect.diff import diff_snapshots

    out.begin()
    if files is None or len(files) != 2:
        raise UsageError(f"inspect diff: expected two snapshots, A and B; found {len(files or ())}")
    check_paths(files)
    path_a, path_b = locations_of(files)
    result = diff_snapshots(path_a, path_b, _clock_of(as_of, expiration_ms), s3.settings())
    return Result(lambda: _document(result), result.findings, lambda: _print(result), in_table=frozenset({"snapshots-differ"}))


def _clock_of(as_of: str | None, expiration_ms: int | None) -> Clock | None:
    from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS
    from snaprebuild.snapshots.engine.clock import Clock

    if as_of is None and expiration_ms is None:
        return None
    return Clock(as_of_ms(as_of), expiration_ms or DEFAULT_EXPIRATION_MS)


def _document(result: SnapshotDiff) -> doc.Diff:
    from snaprebuild.documents import inspect as doc

    return doc.Diff(
        as_of_ms=None if result.clock is None else result.clock.as_of_ms,
        expiration_ms=None if result.clock is None else result.clock.expiration_ms,
        status=result.status.value,
        a=doc.Side(**asdict(result.a)),
        b=doc.Side(**asdict(result.b)),
        totals=doc.DiffTotals(**{kind.value: count for kind, count in result.counts.items()}),
        entries=[doc.DifferingEntry(**{**asdict(entry), "kind": entry.kind.value}) for entry in result.entries],
        entries_not_listed=sum(result.counts.values()) - len(result.entries),
    )


def _print(result: SnapshotDiff) -> None:
    from snaprebuild.cli.result import is_verbose, print_line, print_table, print_text
    from snaprebuild.inspect.diff import DiffKind

    where = {DiffKind.ONLY_IN_A: "only in A", DiffKind.ONLY_IN_B: "only in B"}
    counts = ", ".join(f"{count} {where.get(kind, 'changed')}" for kind, count in result.counts.items() if count)
    print_text(f"{result.status.value.replace('_', ' ')}{': ' if counts else ''}{counts}")
    print_line("")
    sides = (("A", result.a), ("B", result.b))
    rows = [
        (name, *("-" if value is None else value for value in (side.entries, side.expired, side.size_bytes)), side.path)
        for name, side in sides
    ]
    print_table(None, ("", "entries", "expired", "bytes", "file"), rows, right=("entries", "expired", "bytes"))
    shown = result.entries if is_verbose() else result.entries[:ENTRIES_SHOWN_MAX]
    if shown:
        print_text("Producers that differ, and what B costs if A is right")
    for entry in shown:
        print_text(f" {entry.producer_id}: {where.get(entry.kind, 'changed')}; {entry.consequence}", "     ")
        for name, value in () if entry.kind in where else entry.a.items():
            print_text(f"     {name.replace('_', ' '):<26}{value:>20} -> {entry.b[name]}")
    more = sum(result.counts.values()) - len(shown)
    if more:
        print_text(f"and {more:,} more: -v or --output json")
    if None not in (result.a.offset, result.b.offset) and result.a.offset != result.b.offset:
        print_text(
            f"A is the state at offset {result.a.offset}, B at {result.b.offset}: producers that wrote between the two offsets differ, "
            "as expected."
        )
