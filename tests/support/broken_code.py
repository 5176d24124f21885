"""Code under test with one line broken, to see which tests notice.

A line is broken in the text of its module. The functions that this changes get the code of the broken text: in this process, wherever they
were imported.
"""

import contextlib
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any


@dataclass(frozen=True)
class BrokenCode:
    """Lines of a module's text, which occur there once, and wrong ones for their place.

    Attributes:
        name: what the wrong code does.
        module: its full name.
        right: the lines.
        wrong: what takes their place.
    """

    name: str
    module: str
    right: str
    wrong: str


def read_broken_codes(file: Path) -> tuple[BrokenCode, ...]:
    """Reads a list in the form of a diff: ``@@`` and a module, ``#`` and a name, then lines with ``-``, ``+`` or a blank before them."""
    found = []
    for section in re.split(r"^@@ ", file.read_text(), flags=re.MULTILINE)[1:]:
        module, *entries = re.split(r"^# ", section, flags=re.MULTILINE)
        for name, *lines in (entry.strip("\n").split("\n") for entry in entries):
            right, wrong = (["", *(line[1:] for line in lines if line[:1] != left_out), ""] for left_out in "+-")
            found.append(BrokenCode(name, module.strip(), "\n".join(right), "\n".join(wrong)))
    return tuple(found)


def function_codes(code: CodeType) -> dict[str, CodeType]:
    """The functions and methods of a module, or of a class, by their qualified names."""
    found: dict[str, CodeType] = {}
    for each in (constant for constant in code.co_consts if isinstance(constant, CodeType)):
        if "<locals>" not in each.co_qualname and "<" not in each.co_name:
            found |= {each.co_qualname: each} if inspect.CO_OPTIMIZED & each.co_flags else function_codes(each)
    return found


@contextlib.contextmanager
def broken(code: BrokenCode) -> Iterator[None]:
    """The code is broken as long as this is open."""
    module = importlib.import_module(code.module)
    file = Path(inspect.getfile(module))
    text = file.read_text()
    assert text.count(code.right) == 1, f"{code.name}: the text occurs {text.count(code.right)} times in {file.name}"
    right, wrong = (
        function_codes(compile(each, str(file), "exec", dont_inherit=True)) for each in (text, text.replace(code.right, code.wrong))
    )
    functions: dict[str, FunctionType] = {}
    found: Any
    for name in right:
        found = reduce(inspect.getattr_static, name.split("."), module)
        function = inspect.unwrap(found)
        if isinstance(function, FunctionType) and right[name] != wrong[name]:
            functions[name] = function
    assert functions, f"{code.name}: no function changes"
    for name, function in functions.items():
        function.__code__ = wrong[name]
    try:
        yield
    finally:
        for name, function in functions.items():
            function.__code__ = right[name]
