"""The public names: each exists, says what it is, and is on the page."""

import importlib
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import FunctionType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import pytest
from api_page import SPARK
from manifests import REPOSITORY
from sentences import CANNOT_BE_LOADED

import formats
import snaprebuild
from snaprebuild.snapshots.engine.partition_task import Engine, Progress
from snaprebuild.snapshots.source.source import PartitionSource
from snaprebuild.storage.thread_pool import ParallelMap

PUBLIC = [("snaprebuild", name) for name in snaprebuild.__all__ if not name.startswith("__")]
PUBLIC += [(module, name) for module in SPARK for name in importlib.import_module(module).__all__]
PUBLIC += [
    (f"formats.{module}", name) for module in formats.PUBLIC for name in importlib.import_module(f"formats.{module}").__all__
]


@pytest.mark.parametrize(("module", "name"), PUBLIC, ids=".".join)
def test_a_public_name_says_what_it_is(module: str, name: str) -> None:
    value = getattr(importlib.import_module(module), name)
    assert f"### {module}.{name}\n" in (REPOSITORY / "docs" / "reference" / "api.md").read_text()
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return
    assert inspect.getdoc(value), "no docstring"
    functions = (
        [value]
        if inspect.isfunction(value)
        else [each for key, each in vars(value).items() if inspect.isfunction(each) and not key.startswith("_")]
    )
    for function in functions:
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty, function
        for parameter in list(signature.parameters.values())[inspect.isclass(value) :]:
            assert parameter.annotation is not parameter.empty, (function, parameter.name)


NOT_PUBLIC = {
    "OpenBytes": "an open file, read in ranges",
    "_NotesBatches": "narrows a type",
    "ParallelMap": "what plans: it is passed on, and not looked into",
}
"""Classes of ours that public functions return, and that users need no name of."""


FOR_TYPES = {"SparkSession": object, "DataFrame": object, "pandas": SimpleNamespace(DataFrame=object)}
FOR_TYPES |= {"pyarrow": SimpleNamespace(RecordBatch=object, RecordBatchReader=object, Schema=object)}
"""Names that modules import for types only, because the package need not be installed."""
FOR_TYPES |= {"Engine": Engine, "ParallelMap": ParallelMap, "Progress": Progress, "PartitionSource": PartitionSource}


def returned_type(function: FunctionType) -> Any:
    """The evaluated annotation of what a function returns."""
    of_return = SimpleNamespace(__annotations__={"return": function.__annotations__["return"]})
    return get_type_hints(of_return, vars(sys.modules[function.__module__]), FOR_TYPES)["return"]


def test_public_functions_return_public_values() -> None:
    values = [getattr(importlib.import_module(module), name) for module, name in PUBLIC]
    functions = [value for value in values if inspect.isfunction(value)]
    for value in filter(inspect.isclass, values):
        functions += [each for name, each in vars(value).items() if inspect.isfunction(each) and not name.startswith("_")]
    returned = set()
    due = [returned_type(function) for function in functions]
    while due:
        kind = due.pop()
        due += get_args(kind)
        if inspect.isclass(kind) and kind.__module__.startswith(("snaprebuild", "formats")) and kind not in values:
            returned.add(kind.__name__)
    assert returned == set(NOT_PUBLIC)


def test_the_package_has_its_names_and_no_others() -> None:
    assert dir(snaprebuild) == snaprebuild.__all__ == sorted(snaprebuild.__all__)
    with pytest.raises(AttributeError, match="no attribute 'rebuild_everything'"):
        _ = snaprebuild.rebuild_everything  # type: ignore[attr-defined]


FOREIGN = {"a package": "formats/__init__.py", "a module": "formats.py", "ours, overwritten": "formats/__init__.py"}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_package_formats_of_another_project_is_named(kind: str, tmp_path: Path) -> None:
    """Also the command, with an exit code that is not the one for findings."""
    file = tmp_path / FOREIGN[kind]
    if kind == "ours, overwritten":
        shutil.copytree(REPOSITORY / "formats", tmp_path / "formats", ignore=shutil.ignore_patterns("__pycache__"))
    file.parent.mkdir(exist_ok=True)
    file.write_text("PUBLIC = ()\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{REPOSITORY}"}

    def ran(*words: str) -> tuple[int, str]:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stderr

    code, said = ran("-c", "import snaprebuild")
    assert code == 0
    assert f"RuntimeWarning: snaprebuild cannot be used: the package `formats` belongs to another project: {file}." in said
    code, said = ran("-W", "ignore", "-c", "from snaprebuild import Partition")
    assert code == 1
    assert (
        f"\nImportError: cannot import Partition from snaprebuild: the package `formats` belongs to another project: {file}."
        in said
    )
    code, said = ran("-W", "ignore", "-m", "snaprebuild", "--version")
    assert (code, said.count("\n")) == (5, 1)
    assert said.startswith(f"{CANNOT_BE_LOADED}the package `formats` belongs to another project: {file}.")


def test_our_own_package_formats_is_silent() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", "import snaprebuild"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_error_that_the_library_may_raise_is_public() -> None:
    raised = inspect.getdoc(snaprebuild.ensure_snapshot).split("Raises:")[1]  # type: ignore[union-attr]
    named = {word.strip(",:") for word in raised.split() if word.strip(",:").endswith("Error")}
    assert len(named) >= 4
    assert named <= set(snaprebuild.__all__)
