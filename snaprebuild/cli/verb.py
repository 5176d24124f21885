"""A verb of the command line: a function of its options, which returns its result (None: it printed by itself)."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, get_origin, get_type_hints

import click
import msgspec

from snaprebuild.cli.options.assumptions import AssumeOption, Assumption, read_assumptions
from snaprebuild.cli.options.common import Metrics, OutputFormat, OutputOption, Report, Verbose
from snaprebuild.cli.options.description import DescribedOption
from snaprebuild.cli.verb_command import given_settings
from snaprebuild.cli.view import View
from snaprebuild.errors import SnaprebuildError, UsageError

if TYPE_CHECKING:
    from snaprebuild.cli.options.reading import LoadAlone

__all__ = ["MeasuredOutput", "OutputOptions", "verb"]


class OutputOptions(msgspec.Struct, frozen=True):
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

    @property
    def metrics_file(self) -> str | None:
        """Path of the file of metrics; None without one."""
        return None

    @property
    def documents(self) -> dict[str, str | None]:
        """Paths of the documents that are written at the end, by their options."""
        return {"--save-json": self.report}

    def begin(
        self,
        documents: Mapping[str, str | None] | None = None,
        *,
        new_files: Mapping[str, str | None] | None = None,
        read: Mapping[str, str | list[str] | None] | None = None,
        works_without_files: bool = False,
    ) -> None:
        """``begin_verb``, with the documents of all verbs next to those of this one."""
        from snaprebuild.cli.begin_verb import begin_verb

        # Not before the verb begins: `before-start` forks first, so that CMD starts also if a module is damaged or the file cannot be read.
        _protect_log_dirs_of(click.get_current_context().params.get("server_properties"))
        every = {**self.documents, **(documents or {})}
        begin_verb(self.verbose, every, new_files or {}, read or {}, works_without_files=works_without_files)


class MeasuredOutput(OutputOptions, frozen=True):
    """Output options of a verb whose document can be written as metrics (``cli.render.metrics``)."""

    metrics: Metrics = None

    @property
    def metrics_file(self) -> str | None:
        """Path of the file of metrics; None without one."""
        return self.metrics

    @property
    def documents(self) -> dict[str, str | None]:
        """Paths of the documents that are written at the end, by their options.

        Raises:
            UsageError: the collector would not read a file of that name.
        """
        if self.metrics is not None and not self.metrics.endswith(".prom"):
            raise UsageError(f"--metrics: expected a name that ends in .prom, found {self.metrics or 'an empty path'}")
        return {**super().documents, "--metrics": self.metrics}


def verb(
    load: type[LoadAlone] | None = None, *, collects: bool = True
) -> Callable[[Callable[..., View | None]], Callable[..., None]]:
    """Makes a command of a function with keyword arguments.

    An argument whose type is a struct is a group. A field that is annotated with an option of typer is an option.
    One with an ``Assumption`` is a name of ``--assume``, and each other one is a setting of its name.
    typer reads the options from the signature.

    Args:
        load: group of options of how much the verb may read at once; the function runs within these limits and need not know them.
        collects: False for results of hundreds of thousands of small values without a cycle: collecting would cost as much as the work.
    """
    return functools.partial(_command, load, collects)


def _command(load: type[LoadAlone] | None, collects: bool, function: Callable[..., View | None]) -> Callable[..., None]:
    parameters = inspect.signature(function, eval_str=True).parameters
    groups: dict[str, Any] = {name: each.annotation for name, each in parameters.items() if _is_struct(each.annotation)}
    fields = {name: _fields_of(group) for name, group in groups.items()}
    of_load = [] if load is None else _fields_of(load)
    every = [each for name, parameter in parameters.items() for each in fields.get(name, [parameter])] + of_load
    kinds = {each.name: _annotation(each) for each in every}
    assumptions = {name: kind for name, kind in kinds.items() if isinstance(kind, Assumption)}
    settings = tuple(name for name, kind in kinds.items() if kind is None)
    options = [each for each in every if each.name not in settings and each.name not in assumptions]
    if assumptions:
        options.append(inspect.Parameter("assume", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=AssumeOption))

    @functools.wraps(function)
    def run(**parameter_values: Any) -> None:
        values = {name: each.value for name, each in given_settings().items()} | parameter_values
        values |= read_assumptions(parameter_values.get("assume") or (), assumptions)

        def group_of(group: Any, own: list[inspect.Parameter]) -> Any:
            return group(**{each.name: values[each.name] for each in own if each.name in values})

        arguments = {
            name: group_of(groups[name], fields[name]) if name in groups else parameter_values[name] for name in parameters
        }
        try:
            with ExitStack() as limits:
                if load is not None:
                    limits.enter_context(group_of(load, of_load).limits())
                if not collects:
                    limits.enter_context(_uncollected())
                result = function(**arguments)
                if result is not None:
                    from snaprebuild.cli.output import emit_and_exit

                    emit_and_exit(result, next(each for each in arguments.values() if isinstance(each, OutputOptions)))
        except BrokenPipeError as error:
            # Not that of stdout or stderr, which printing takes care of: click would exit with 1, which means findings.
            raise SnaprebuildError(f"a pipe broke: {error.strerror}") from error

    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.settings = settings  # type: ignore[attr-defined]
    run.assumptions = assumptions  # type: ignore[attr-defined]
    described = {each.name: _annotation(each) for each in options}
    run.texts = {name: each.text for name, each in described.items() if isinstance(each, DescribedOption)}  # type: ignore[attr-defined]
    return run


def _protect_log_dirs_of(server_properties: str | None) -> None:
    """Before anything is created: a document may not be in one of its log directories, and these may be empty as yet."""
    if not server_properties:
        return
    from snaprebuild.cli.runs.run_settings import run_facts

    with suppress(SnaprebuildError):  # the verb reads it again, and reports what is wrong with it
        run_facts().properties(server_properties)


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _fields_of(group: type[msgspec.Struct]) -> list[inspect.Parameter]:
    """The fields as parameters, with their evaluated annotations."""
    kinds = get_type_hints(group, include_extras=True)
    return [each.replace(annotation=kinds[each.name]) for each in inspect.signature(group).parameters.values()]


@contextmanager
def _uncollected() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.freeze()  # the first collection would go through the whole result
            gc.enable()


def _annotation(parameter: inspect.Parameter) -> object:
    """The annotation of a parameter: an option of typer, an ``Assumption``, or None for a setting."""
    if get_origin(parameter.annotation) is Annotated:
        return parameter.annotation.__metadata__[0]
    return None
