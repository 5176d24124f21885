"""Lines about pip can be pasted: the package is on no index, so that a checkout, a wheel or the packages that are missing are named."""

import re
import tomllib

import pytest
from manifests import REPOSITORY
from source_files import python_files

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.ipynb"))]
SOURCES = python_files(REPOSITORY / "snaprebuild")
PIP = re.compile(r"pip install ((?:'[^']+'|[^\s'\"`();]+)(?: (?:'[^']+'|[A-Za-z0-9./_-]+))*)")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def pip_lines(texts: list[str]) -> list[str]:
    return [found for text in texts for found in PIP.findall(text)]


def test_no_line_takes_the_package_from_an_index() -> None:
    lines = pip_lines([path.read_text() for path in (*PAGES, *SOURCES)])
    assert len(lines) >= 12
    for line in lines:
        words = line.split()
        is_offline = "--no-index" in words
        assert is_offline or not any(word.strip("'").startswith("snaprebuild") for word in words), line


def test_each_extra_is_one_of_the_project() -> None:
    named = [extra for path in PAGES for extra in re.findall(r"pip install '\.\[([a-z-]+)\]'", path.read_text())]
    assert {"spark", "spark-java", "kafka", "records"} <= set(named) <= set(EXTRAS)


@pytest.mark.parametrize("path", [path for path in SOURCES if "pip install" in path.read_text()], ids=lambda path: path.stem)
def test_a_message_names_packages_of_an_extra(path: object) -> None:
    known = {re.split(r"[<>=;\[]", each)[0].strip() for extra in EXTRAS.values() for each in extra}
    for line in pip_lines([path.read_text()]):  # type: ignore[attr-defined]
        for word in line.split():
            assert re.split(r"[<>=]", word.strip("'"))[0] in known, line
