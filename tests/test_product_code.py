"""Code that only tests use is in tests."""

import re
from pathlib import Path

import snaprebuild
from snaprebuild.spark import notebook

ROOT = Path(__file__).parent.parent

USED_BY_TESTS = {
    "crc32_reference": "crcmod is the reference of each checksum, next to its definition",
    "crc32c_reference": "the same",
    "file_versions": "tests compare the catalogue of releases with the constants of the product",
    "level_name": "the same",
    "parse_snapshot": "the reader by the grammar, which is the reference of the fast one",
}
"""Functions without a user in the product that stay there, with the reason."""


NAME = re.compile(r"(?<![\w\"'`])(?<!def )[A-Za-z_]\w*(?![\w\"'`])")
"""A name in code: not one that is defined here, not one in ``__all__``, not one in a docstring's quotes."""

FUNCTION = re.compile(r"^([^\n]*)\ndef (\w+)", re.MULTILINE)
"""A function of a module, with the line before it: a decorator, or nothing."""


def test_each_function_has_a_user_in_the_product() -> None:
    texts = [path.read_text() for package in ("formats", "snaprebuild") for path in (ROOT / package).rglob("*.py")]
    used = {name for text in texts for name in NAME.findall(text)}
    functions = {name for text in texts for line, name in FUNCTION.findall(text) if not line}
    public = {*snaprebuild.__all__, *notebook.__all__}
    unused = {name for name in functions - used - public if not name.startswith("__")}
    assert not unused - USED_BY_TESTS.keys(), "move them to tests, or give them a user"
    assert not USED_BY_TESTS.keys() - unused, "they have a user"
