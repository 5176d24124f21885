"""A verb of the command line: a function of its options, which returns its result (None: it printed by itself)."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from snaprebuild.cli.options.assumptions import AssumeOption, Assumption, read_assumptions
from snaprebuild.cli.options.common import OutputFormat, OutputOption, Report, Verbose
from snaprebuild.cli.verb_command import given_settings
from snaprebuild.errors import SnaprebuildError

if TYPE_CHECKING:
    from snaprebuild.cli.options.io_limits import LoadAlone
    from snaprebuild.documents.typed import Document
    from snaprebuild.findings import Finding

__all__ = ["OutputOptions", "Result", "verb"]


@dataclass(frozen=True)
class OutputOptions:
    """Where the result goes; each field is an option."""

    output: OutputOption = OutputFormat.TABLE
    report: Report = None
    verbose: Verbose = 0

    @property
    def as_json(self) -> bool:
        """Whether stdout is the document."""
        return self.output is OutputFormat.JSON

    @property
    def everything(self) -> bool:
        """Whether all findings are printed, however many."""
        return self.verbose > 0

    def begin(self, documents: Mapping[str, str | None] | None = None, **read: str | list[str] | None) -> None:
        """``result.begin`` with ``--save-json`` as one of the documents."""
        from snaprebuild.cli.result import begin

        begin(self.verbose, {"--save-json": self.report, **(documents or {})}, **read)


@dataclass(frozen=True)
class Result:
    """What a verb found or did. The exit code follows from the findings.

    Attributes:
        document: makes the JSON document; called once for each place that gets it.
        findings: of the result.
        show: prints the tables.
        notes: print notes to stderr even without ``-v``.
        everything: print all findings even without ``-v``.
        write: writes another file of the result; raises as a report does.
        last: called when all is written, whatever happened.
        in_table: codes of findings that the tables show, so that stderr does not repeat them without ``-v``.
        names_unread: the tables begin with what was not read.
    """

    document: Callable[[], Document]
    findings: Sequence[Finding]
    show: Callable[[], None]
    notes: bool = False
    everything: bool = False
    write: Callable[[], None] | None = None
    last: Callable[[], None] | None = None
    in_table: frozenset[str] = frozenset()
    names_unread: bool = False


def verb(
    load: type[LoadAlone] | None = None, *, collects: bool = True
) -> Callable[[Callable[..., Result | None]], Callable[..., None]]:
    """Makes a command of a function with keyword arguments.

    An argument whose type is a dataclass is a group: a field that is annotated with an option of typer is an option, one with an
    ``Assumption`` a name of ``--assume``, and each other one a setting of its name. typer reads the options from the signature.

    Args:
        load: group of options of how much the verb may read at once; the function runs within these limits and need not know them.
        collects: False for results of hundreds of thousands of small values without a cycle: collecting would cost as much as the work.
    """
    return functools.partial(_command, load, collects)


def _command(load: type[LoadAlone] | None, collects: bool, function: Callable[..., Result | None]) -> Callable[..., None]:
    parameters = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in parameters.items() if is_dataclass(each.annotation)}
    options: list[inspect.Parameter] = []
    settings = dict.fromkeys(name for group in (*groups.values(), load) if group is not None for name in _settings(group))
    for name, each in parameters.items():
        options += _options(groups[name]) if name in groups else [each]
    options += [] if load is None else _options(load)
    assumptions = {name: each for group in groups.values() for name, each in _assumptions(group).items()}
    if assumptions:
        options.append(inspect.Parameter("assume", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AssumeOption))

    def made(group: Any, given: dict[str, Any], assumed: dict[str, Any]) -> Any:
        of_run = given_settings()
        own = {name: of_run[name].value for name in _settings(group) if name in of_run}
        own |= {name: assumed[name] for name in _assumptions(group) if name in assumed}
        return group(**own, **{option.name: given.pop(option.name) for option in _options(group)})

    @functools.wraps(function)
    def run(**given: Any) -> None:
        assumed = read_assumptions(given.pop("assume") or (), assumptions) if assumptions else {}
        values = {name: made(group, given, assumed) for name, group in groups.items()}
        try:
            with ExitStack() as limits:
                if load is not None:
                    limits.enter_context(made(load, given, {}).limits())
                if not collects:
                    limits.enter_context(_uncollected())
                result = function(**values, **given)
                if result is not None:
                    from snaprebuild.cli.result import leave

                    leave(result, next(each for each in values.values() if isinstance(each, OutputOptions)))
        except BrokenPipeError as error:
            # Not that of stdout or stderr, which printing takes care of: click would exit with 1, which means findings.
            raise SnaprebuildError(f"a pipe broke: {error.strerror}") from error

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.settings, run.assumptions = tuple(settings), assumptions  # type: ignore[attr-defined]
    return run


@contextmanager
def _uncollected() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _annotations(group: type) -> Iterator[tuple[inspect.Parameter, object]]:
    """The fields of a group, with what annotates each; None for nothing."""
    for each in inspect.signature(group, eval_str=True).parameters.values():
        yield each, each.annotation.__metadata__[0] if get_origin(each.annotation) is Annotated else None


def _options(group: type) -> list[inspect.Parameter]:
    return [each for each, what in _annotations(group) if what is not None and not isinstance(what, Assumption)]


def _assumptions(group: type) -> dict[str, Assumption]:
    return {each.name: what for each, what in _annotations(group) if isinstance(what, Assumption)}


def _settings(group: type) -> list[str]:
    return [each.name for each, what in _annotations(group) if what is None]
