"""Promises of pyproject.toml to users, the packages that scripts/setup installs of it, and those to which scripts/release/locked
holds a release."""

from __future__ import annotations

import re
import subprocess
import tomllib
from email.message import Message
from importlib.metadata import version
from pathlib import Path

import pytest
from dependency_groups import requirements
from manifests import REPOSITORY
from package_locks import BUNDLED, LOCKS, newer_packages, newer_pins, pins
from packaging.dependency_groups import resolve_dependency_groups
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from spdx_licenses import all_of, of_debian, of_distribution

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
GROUPS = PROJECT["dependency-groups"]


def test_users_see_only_extras_that_are_for_them() -> None:
    assert set(PROJECT["project"]["optional-dependencies"]) == {"spark", "spark-java", "encryption", "kafka", "records"}
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text().partition("## Extras")[2].partition("\n## ")[0]
    assert set(re.findall(r"`snaprebuild\[([\w-]+)\]`", page)) == set(PROJECT["project"]["optional-dependencies"])


@pytest.mark.parametrize(("python", "pandas"), [("3.11", "2.3.3"), ("3.14", "2.3.3"), ("3.15", "3.1.1")])
def test_the_extra_for_spark_has_a_pandas_for_each_python(python: str, pandas: str) -> None:
    """The versions are the newest ones that the index has for that Python, below 3 where there is a choice: pyspark warns of 3."""
    requirements_of_spark = map(Requirement, PROJECT["project"]["optional-dependencies"]["spark"])
    of_pandas = [each for each in requirements_of_spark if each.name == "pandas"]
    (applies,) = [each for each in of_pandas if each.marker is None or each.marker.evaluate({"python_version": python})]
    assert list(applies.specifier.filter(["2.3.3", "3.1.1"])) == [pandas]


@pytest.mark.parametrize("group", GROUPS)
def test_groups_are_read_as_pip_reads_them(group: str) -> None:
    """The reference is the package that pip and build use."""
    ours = {str(Requirement(text)) for text in requirements(GROUPS, group)}
    assert ours == set(map(str, resolve_dependency_groups(GROUPS, group)))


@pytest.mark.parametrize("package", ["click", "msgspec", "mypy", "rich", "ruff", "typer"])
def test_what_decides_about_texts_is_pinned_for_tests(package: str) -> None:
    """A new release of these changes schemas, help screens, lint or types, so that tests would depend on the date."""
    (pinned,) = [each for each in map(Requirement, requirements(GROUPS, "test")) if each.name == package]
    (specifier,) = pinned.specifier
    assert specifier.operator == "=="
    assert version(package) == specifier.version


@pytest.mark.parametrize(
    "groups",
    [
        {"a": [{"include-group": "b"}]},
        {"a": [{"include-group": "b"}], "b": [{"include-group": "A"}]},
        {"a": [{"include": "b"}], "b": []},
    ],
    ids=["absent", "cycle", "unknown entry"],
)
def test_a_group_that_means_nothing_is_an_error(groups: dict[str, list[object]]) -> None:
    with pytest.raises(ValueError, match="dependency group"):
        list(requirements(groups, "a"))


def test_setup_names_each_group_or_extra_that_it_takes() -> None:
    script = (REPOSITORY / "scripts" / "setup").read_text()
    (named,) = re.findall(r"usage: scripts/setup \[(.*?)\]", script)
    parts = set(named.split(" | "))
    assert parts <= set(GROUPS) | set(PROJECT["project"]["optional-dependencies"])
    assert parts == set(re.findall(r"^#   scripts/setup ([\w-]+)", script, re.MULTILINE))
    done = subprocess.run([REPOSITORY / "scripts" / "setup", "release"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, ""), "scripts/release/make_release.py has an environment of its own"


# --- the locks ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_is_in_the_form_that_pip_requires(lock: Path) -> None:
    body = "".join(line for line in lock.read_text().splitlines(keepends=True) if not line.startswith("#"))
    entries = re.findall(r"^[a-z0-9-]+==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+\n", body, re.MULTILINE)
    assert "".join(entries) == body
    assert len(entries) == len(pins(lock)) > 20


def test_the_locks_admit_what_pyproject_admits() -> None:
    """If a range changes, run scripts/release/package_locks.py."""
    locked = {name: version for lock in LOCKS for name, version in pins(lock).items()}
    assert sum(len(pins(lock)) for lock in LOCKS) == len(locked), "a package is in one of them"
    for text in (*PROJECT["project"]["dependencies"], *requirements(GROUPS, "release")):
        wanted = Requirement(text)
        assert wanted.specifier.contains(locked[canonicalize_name(wanted.name)]), text
    bundled = {canonicalize_name(Requirement(text).name) for text in PROJECT["project"]["dependencies"]}
    assert bundled <= pins(BUNDLED).keys()


def test_a_lock_that_is_not_the_newest_is_named() -> None:
    newest = {lock: dict(pins(lock)) for lock in LOCKS}
    assert list(newer_pins(newest)) == []
    was = newest[BUNDLED].pop("six")
    newest[BUNDLED] |= {"boto3": "999.1", "seven": "1.0"}
    found = list(newer_pins(newest))
    assert [re.sub(r" \(.*", "", line) for line in found] == [
        f"boto3 {pins(BUNDLED)['boto3']}: the index has 999.1",
        "seven not locked: the index has 1.0",
        f"six {was}: the index has not needed",
    ]


APT = """#!/bin/sh
case "$1 $2" in
"policy libssl3") printf 'libssl3:\\n  Installed: 3.0.19-1\\n  Candidate: %s\\n  Version table:\\n     3.0.17-1 500\\n' "$NEWEST" ;;
"update -qq") ;;
*) exit 9 ;;
esac
"""


@pytest.mark.parametrize(("newest", "lines"), [("3.0.19-1", []), ("3.0.22-1", ["libssl3 3.0.19-1: apt has 3.0.22-1"])])
def test_a_library_that_is_not_the_newest_is_named(
    newest: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("apt-cache", "apt-get"):
        (tmp_path / name).write_text(APT)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("NEWEST", newest)
    monkeypatch.setattr("package_locks.packages_of_python", lambda: ["libssl3"])
    assert list(newer_packages()) == lines


def test_a_python_of_no_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-get").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr("package_locks.packages_of_python", list)
    (line,) = newer_packages()
    assert "belongs to no package" in line


# --- licences ---------------------------------------------------------------------------------------------------------------------

GPL_OF_GCC = "The libraries are under the GPL.\nGCC RUNTIME LIBRARY EXCEPTION\nVersion 3.1"
DEBIAN_FORM = (
    "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n{}\n\nFiles: tests/*\nLicense: GPL-2+\n"
)


@pytest.mark.parametrize(
    ("notice", "expression"),
    [
        (DEBIAN_FORM.format("Files: *\nCopyright: 2020 A\n  2021 B\nLicense: Expat"), "MIT"),
        (DEBIAN_FORM.format("Files: *\nCopyright: 2020 A\nLicense: LGPL-2.1+"), "LGPL-2.1-or-later"),
        (DEBIAN_FORM.format("Files: *\nCopyright: 2020 A\nLicense: GPL-2"), "GPL-2.0-only"),
        (DEBIAN_FORM.format("Files: *\nCopyright: 2020 A\nLicense: PD"), "LicenseRef-public-domain"),
        (GPL_OF_GCC, "GPL-3.0-or-later WITH GCC-exception-3.1"),
    ],
)
def test_licences_of_debian_as_spdx_writes_them(notice: str, expression: str) -> None:
    assert of_debian("libx", notice) == expression


@pytest.mark.parametrize(
    ("fields", "notice", "expression"),
    [
        ([("License-Expression", "MIT OR Apache-2.0")], "", "MIT OR Apache-2.0"),
        ([("Classifier", "License :: OSI Approved :: MIT License")], "", "MIT"),
        ([("Classifier", "License :: OSI Approved :: BSD License")], "Neither the name of A", "BSD-3-Clause"),
        ([("Classifier", "License :: OSI Approved :: BSD License")], "Redistribution and use", "BSD-2-Clause"),
        ([("License", "Apache License 2.0")], "", "Apache-2.0"),
    ],
)
def test_licences_of_python_packages_as_spdx_writes_them(fields: list[tuple[str, str]], notice: str, expression: str) -> None:
    metadata = Message()
    for name, value in fields:
        metadata[name] = value
    assert of_distribution(metadata, notice) == expression


def test_a_licence_that_is_not_known_stops_a_release() -> None:
    metadata = Message()
    metadata["Name"] = "x"
    metadata["License"] = "as my lawyer says"
    with pytest.raises(ValueError, match="no licence is known"):
        of_distribution(metadata, "")
    for notice in ("All rights reserved.", DEBIAN_FORM.format("Files: *\nCopyright: 2020 A\nLicense: of-a-friend")):
        with pytest.raises(ValueError, match="shows no known licence"):
            of_debian("libx", notice)


def test_one_expression_for_parts_that_are_used_together() -> None:
    assert all_of(["MIT", "Zlib AND MIT", "MIT OR GPL-2.0-only"]) == "(MIT OR GPL-2.0-only) AND MIT AND Zlib"


# --- the index page ---------------------------------------------------------------------------------------------------------------


@pytest.mark.full  # hatchling
def test_links_of_readme_are_absolute_where_an_address_is_known() -> None:
    pytest.importorskip("hatchling", reason="NOT RUN: hatchling is not installed (scripts/setup full-test)")
    from index_page import absolute_links

    readme = (REPOSITORY / "README.md").read_text()
    base = "https://git.example/snaprebuild/blob/0123/"
    text = absolute_links(readme, base)
    targets = [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r"^\[[^\]\n]+\]: (\S+)", text, re.MULTILINE)]
    assert len(targets) > 30
    for target in targets:
        assert target.startswith(base), target
        assert (REPOSITORY / target.removeprefix(base).partition("#")[0]).exists(), target
    assert text.replace(base, "") == readme
    assert absolute_links(text, base) == text
