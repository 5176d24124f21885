"""The results of the functions ``scan``, ``plan``, ``rebuild``, ``verify`` and ``audit``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec.structs import replace

from snaprebuild.argument_names import names_arguments, with_arguments
from snaprebuild.documents.envelope import reported, with_status
from snaprebuild.documents.plan import PlanDocument, PlannedPartition
from snaprebuild.errors import UsageError
from snaprebuild.findings import ReportedFinding, exit_code_of
from snaprebuild.library.command_line import CommandLine
from snaprebuild.library.tables import Row, RowTable
from snaprebuild.published import Document, Part, encoded_members
from snaprebuild.snapshots.plan.plan_file import save_plan
from snaprebuild.snapshots.plan.plan_model import Plan
from snaprebuild.snapshots.run import Invocation
from snaprebuild.storage.local.document_file import check_place

if TYPE_CHECKING:
    import os

    import pandas

    from snaprebuild.cli.view import View
    from snaprebuild.spark.arrow_tables import DataFrame, SparkSession

__all__ = ["SENTENCES", "PlanResult", "Result"]

DocumentT = TypeVar("DocumentT", bound=Document)
PartitionT = TypeVar("PartitionT")

REPR_CHARACTERS_MAX = 160

_ON_STDERR = re.compile(r"\bstderr(?= (?:lists|shows)\b)")
"""Where the answer of a command points at its findings: a result has them as an attribute."""

PANDAS_TYPES = {str: "object", list: "object", int: "Int64", float: "Float64", bool: "boolean"}
"""Types that have a value for unknown: the usual ones of pandas would turn offsets into floats where one is missing."""


@dataclass(frozen=True, repr=False, eq=False)
class Result(Generic[DocumentT, PartitionT]):
    """The result of ``scan``, ``plan``, ``rebuild``, ``verify`` or ``audit``: what the command prints, as values.

    ``for partition in result`` gives the partitions of the document, and ``len(result)`` their number.
    """

    _command: CommandLine
    _invocation: Invocation
    _table: RowTable[PartitionT]
    _new_view: Callable[[], View]

    @cached_property
    def document(self) -> DocumentT:
        """The members of the JSON document of the command (docs/reference/json.md), as structs. Sentences name arguments."""
        return cast("DocumentT", _with_argument_names(self._command_document))

    @cached_property
    def _command_document(self) -> DocumentT:
        """The document of the command."""
        with self._as_command():
            document = with_status(self._view.document(), self.exit_code)
        values = {name: getattr(document, name) for name in document.__struct_fields__}
        whole = {name: tuple(value) for name, value in values.items() if isinstance(value, Iterator)}
        return cast("DocumentT", replace(document, **whole))

    @property
    def partitions(self) -> tuple[PartitionT, ...]:
        """The partitions of the document, in the order of the command."""
        return tuple(self.document.partitions)  # type: ignore[attr-defined]  # each of their documents has them

    def __iter__(self) -> Iterator[PartitionT]:
        return iter(self.partitions)

    def __len__(self) -> int:
        return len(self.partitions)

    @cached_property
    def findings(self) -> tuple[ReportedFinding, ...]:
        """The findings: faults, refusals, paths that could not be read, and notes. Messages name arguments, not options."""
        findings = map(reported, self._view.findings)
        return tuple(replace(finding, message=with_arguments(finding.message)) for finding in findings)

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0 for nothing found, else that of the worst finding (docs/reference/exit-codes.md)."""
        return exit_code_of(self._view.findings)

    @property
    def answer(self) -> str:
        """The first lines that the command prints, with the names of arguments, and ``findings`` in place of stderr."""
        return _ON_STDERR.sub("`findings`", with_arguments(str(self._members["answer"] or "")))

    @property
    def next_command(self) -> str | None:
        """The command that follows, for a shell; None if there is nothing to do."""
        command: str | None = self._members["next_command"]
        return command

    def show(self) -> None:
        """Prints the answer and the tables on stdout, and the findings on stderr, as the command does. Sentences name arguments."""
        from snaprebuild.cli.answer import print_findings
        from snaprebuild.cli.output import print_view, printed_findings
        from snaprebuild.cli.printing import worded

        view = self._view
        with self._as_command(), worded(with_arguments):
            print_view(view, self.exit_code)
            findings = [replace(each, message=with_arguments(each.message)) for each in printed_findings(view, hides_tabled=True)]
            print_findings(findings, notes=view.prints_notes, everything=False)

    def rows(self) -> list[Row]:
        """The rows of the table.

        There is one for each partition of a scan, each boundary of a plan or a rebuild, each snapshot of ``verify``, and each copy of an
        audit.
        """
        return list(self._each_row())

    def _each_row(self) -> Iterator[Row]:
        rows = (row for partition in self.partitions for row in self._table.rows_of(partition))
        return map(_with_named_arguments, rows)

    @property
    def columns(self) -> dict[str, type]:
        """The type of each value in ``rows``: ``str``, ``int``, ``float``, ``bool`` or ``list`` (of text). Each may be None."""
        return self._table.columns

    def to_pandas(self) -> pandas.DataFrame:
        """The rows as a DataFrame of pandas. Offsets are exact, also in a column with unknown values (``Int64``).

        Raises:
            UsageError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise UsageError("a DataFrame needs pandas: pip install 'pandas<3'") from error
        rows = self.rows()
        columns = {
            name: pandas.Series([row[name] for row in rows], dtype=PANDAS_TYPES[kind]) for name, kind in self._table.columns.items()
        }
        return pandas.DataFrame(columns)

    @names_arguments
    def toDF(self, session: SparkSession) -> DataFrame:  # noqa: N802  the name is Spark's
        """The rows as a DataFrame of Spark.

        Args:
            session: of Spark, also of Spark Connect.

        Raises:
            UsageError: pyspark or pyarrow is not installed.
        """
        try:
            import pyarrow as pa

            from snaprebuild.spark.arrow_tables import data_frame
        except ImportError as error:
            raise UsageError("a DataFrame of Spark needs pyspark and pyarrow: pip install pyspark pyarrow 'pandas<3'") from error
        kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_(), list: pa.list_(pa.string())}
        schema = pa.schema([(name, kinds[kind]) for name, kind in self.columns.items()])
        return data_frame(session, pa.Table.from_pylist(self.rows(), schema=schema))

    def to_json(self) -> str:
        """The JSON document that the command prints with ``--output json``: its sentences name options."""
        from snaprebuild.cli.output import json_text

        own = encoded_members(self._command_document)
        members = {**self._members, **own, "findings": tuple(map(reported, self._view.findings))}
        streamed = {name for name, value in self._members.items() if isinstance(value, Iterator)}
        return "".join(json_text({name: iter(value) if name in streamed else value for name, value in members.items()}))

    @property
    def _title(self) -> str:
        return f"{self._command.verb}, exit code {self.exit_code}"

    def _repr_html_(self) -> str:
        from snaprebuild.library.result_html import html_of

        return html_of(self._title, self.answer, self.next_command, self.columns, self._each_row())

    def __repr__(self) -> str:
        answer = " ".join(self.answer.split())
        text = f"{self._title}: {answer}"
        if len(text) > REPR_CHARACTERS_MAX:
            text = f"{text[: REPR_CHARACTERS_MAX - 3]}..."
        return f"<{text}>"

    @cached_property
    def _view(self) -> View:
        with self._as_command():
            return self._new_view()

    @cached_property
    def _members(self) -> Mapping[str, Any]:
        from snaprebuild.cli.output import members_of_view

        view = self._view
        with self._as_command():
            return members_of_view(view)

    @contextmanager
    def _as_command(self) -> Iterator[None]:
        with self._command.active(), self._invocation.active():
            yield


@dataclass(frozen=True, repr=False, eq=False)
class PlanResult(Result[PlanDocument, PlannedPartition]):
    """The result of ``plan``, which ``rebuild(plan=...)`` carries out."""

    _plan: Plan

    @names_arguments
    def save(self, path: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> None:
        """Saves the plan for ``rebuild(plan=path)``, or ``snaprebuild rebuild --plan FILE``; an older plan is replaced.

        Args:
            path: of the file.

        Raises:
            RefusedError: it may not be written there.
            WriteFailedError: it cannot be written.
        """
        import os

        file = os.fsdecode(path)
        check_place(file)
        save_plan(self._plan, file)


def _with_named_arguments(row: Row) -> Row:
    """A row whose reasons name arguments in place of options."""
    reason = row.get("reason")
    if reason is not None:
        row["reason"] = with_arguments(reason)
    if "reasons" in row:
        row["reasons"] = [with_arguments(each) for each in row["reasons"]]
    return row


SENTENCES = frozenset(
    (
        "age",
        "asserted_by_operator",
        "assumes",
        "cause",
        "consequence",
        "detail",
        "effect",
        "evidence",
        "fault",
        "interval",
        "last_stable_offset_source",
        "message",
        "not_looked_at",
        "reason",
        "reasons",
        "remedy",
        "replay_reason",
        "retention_source",
        "source",
        "takes_effect",
        "unproven_reason",
    )
)
"""Members of the documents of results that are sentences, or parts of some."""


def _with_argument_names(value: Any, name: str = "") -> Any:
    """A document, or a part of one, whose sentences name arguments in place of options.

    Args:
        value: of a member.
        name: of that member.
    """
    if isinstance(value, str):
        return with_arguments(value) if name in SENTENCES else value
    if isinstance(value, tuple | list):
        changed = [_with_argument_names(each, name) for each in value]
        return type(value)(changed)
    if isinstance(value, Part):
        members = {each: getattr(value, each) for each in value.__struct_fields__}
        named = {each: _with_argument_names(member, each) for each, member in members.items()}
        different = {each: member for each, member in named.items() if member is not members[each] and member != members[each]}
        return replace(value, **different) if different else value
    return value
