"""The architecture: which module may import which, where heavy packages may be imported, and what the files may mention."""

import ast
import functools
import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from source_files import python_files, statements

import snaprebuild

ROOT = Path(__file__).resolve().parent.parent

LAYERS = (
    ("formats", 0),
    ("snaprebuild.errors", 0),
    ("snaprebuild.published", 0),
    ("snaprebuild.argument_checks", 0),
    ("snaprebuild.argument_names", 0),
    ("snaprebuild.shell_words", 0),
    ("snaprebuild.typed_paths", 0),
    ("snaprebuild.replay", 1),
    ("snaprebuild.storage", 2),
    ("snaprebuild.findings", 3),
    ("snaprebuild.broker", 4),
    ("snaprebuild.snapshots", 5),
    ("snaprebuild.consume", 6),
    ("snaprebuild.inspect", 6),
    ("snaprebuild.tier", 6),
    ("snaprebuild.followers", 6),
    ("snaprebuild.cluster", 6),
    ("snaprebuild.simulations", 6),
    ("snaprebuild.documents", 7),
    ("snaprebuild.report", 8),
    ("snaprebuild.spark.notebook", 11),
    ("snaprebuild.spark", 8),
    ("snaprebuild.hooks", 8),
    ("snaprebuild.cli", 9),
    ("snaprebuild.library", 10),
    ("snaprebuild.__main__", 10),
)
"""A module imports only from its own layer or from lower ones."""

PUBLIC_PACKAGE_LAYER = 10
"""Layer of ``snaprebuild`` itself: its version, and public names, which are loaded when they are asked for (tests/test_api.py)."""

DOMAIN_LAYER = 6
"""Packages of this layer are independent of each other, except for ``DOMAIN_IMPORTS``."""

DOMAIN_IMPORTS = {
    "consume: tier.remote_store": "the store, with the copies of each partition",
    "consume: tier.remote_partition": "the copies below the log on disk, as a chain by its leader epochs",
    "inspect: cluster.metadata": "`inspect transactions` explains a hanging transaction by the elections of its partition",
    "tier: consume.log_pieces": "`tier audit --level records` reads each batch of a copy",
    "tier: cluster.source_check": "`tier upload` takes a replica that the cluster's rules trust; `tier audit` compares producer ids",
    "tier: cluster.metadata": "`tier inventory` shows the replicas of `__remote_log_metadata`; `tier metadata` writes them",
    "followers: cluster.source_check": "`follower build` and `follower repair` write only to replicas that the rules trust",
    "followers: cluster.metadata": "`follower build` compares the producer ids of a copy with the next one of the cluster",
    "followers: tier.remote_log": "which copies of a tiered topic are current",
    "followers: tier.expiration": "which of them a new log start deletes",
    "followers: tier.remote_store": "the store, and its copies that no record names",
    "followers: tier.remote_partition": "the copies of one partition",
    "followers: tier.audit": "whether the snapshot of a copy is right",
    "followers: tier.cost": "the cost of a replay of copies is estimated, and limited, before they are read",
    "simulations: cluster.metadata": "`simulate isr` keeps brokers and partitions as the metadata log registers them",
    "simulations: cluster.quorum": "the simulation of KAFKA-14932 runs the policies that real directories are checked with",
}
"""Imports of a domain from another one, each with its reason."""

FORMATS_MAY_USE = {
    *("__future__", "codecs", "collections", "construct", "crc32c", "crcmod", "dataclasses", "enum", "functools"),
    *("importlib", "json", "msgspec", "numpy", "re"),
}
FORMATS_MAY_USE |= {"cramjam", "typing", "zlib", "base64", "binascii", "io", "math", "struct", "itertools"}
FORMATS_MAY_USE |= {"cryptography", "hashlib", "hmac"}

ONLY_IN = {
    "construct": ("formats/",),
    "crcmod": ("formats/checksum.py",),
    "crc32c": ("formats/checksum.py",),
    "cramjam": ("formats/compression.py",),
    "cryptography": ("formats/remote/aiven_encryption.py",),
    "typer": ("snaprebuild/cli/",),
    "rich": ("snaprebuild/cli/",),
    "shlex": ("snaprebuild/shell_words.py",),
    "boto3": ("snaprebuild/storage/s3/requests.py",),
    "botocore": tuple(
        f"snaprebuild/storage/s3/{name}.py" for name in ("store", "answers", "bucket", "listing", "multipart", "requests")
    ),
    "confluent_kafka": ("snaprebuild/storage/remote/metadata_topic.py",),
    "pyspark": ("snaprebuild/spark/",),
}


def _modules() -> list[tuple[str, Path]]:
    found = []
    for package in ("formats", "snaprebuild"):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found.append((name, path))
    return found


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@functools.cache
def _imports(path: Path, *, for_types: bool = True) -> frozenset[str]:
    """Every absolute import of a file, at any depth; `from a import b` counts as a and as a.b.

    Args:
        path: of the file.
        for_types: also those in `TYPE_CHECKING` blocks.
    """
    names: set[str] = set()
    tree = _tree(path)
    found = list(statements(tree.body))
    left_out = set() if for_types else {node for block in found if _is_for_types(block) for node in statements([block])}
    for node in found:
        if node in left_out:
            continue
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where they lead"
            names.add(node.module or "")
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(names)


def _layer(name: str) -> int | None:
    matches = [layer for prefix, layer in LAYERS if name == prefix or name.startswith(prefix + ".")]
    return matches[0] if matches else None


MODULES = _modules()
KNOWN = {name for name, _ in MODULES}


def test_imports_point_to_lower_layers() -> None:
    assert not {name for name in KNOWN - {"snaprebuild"} if _layer(name) is None}, "they have no layer"
    wrong = []
    for name, path in MODULES:
        own = PUBLIC_PACKAGE_LAYER if name == "snaprebuild" else _layer(name)
        for imported in _imports(path) & KNOWN - {"snaprebuild"}:  # that one is imported for its version
            layer = _layer(imported)
            assert own is not None
            assert layer is not None
            if layer > own:
                wrong.append(f"{name} (layer {own}) imports {imported} (layer {layer})")
    assert wrong == []


def test_imports_between_domains_are_listed_with_reasons() -> None:
    found = set()
    for name, path in MODULES:
        domain = name.split(".")[1] if _layer(name) == DOMAIN_LAYER else None
        for imported in _imports(path) & KNOWN if domain else ():
            other = imported.split(".")[1:3]
            if _layer(imported) == DOMAIN_LAYER and other[0] != domain:
                found.add(f"{domain}: {'.'.join(other)}")
    assert found == DOMAIN_IMPORTS.keys()


def test_no_module_imports_itself_through_others() -> None:
    """Imports inside functions count, too; those for types do not, nor those of a package by its own modules for a constant in it."""
    graph = {
        name: {each for each in _imports(path, for_types=False) & KNOWN - {name} if not name.startswith(f"{each}.")}
        for name, path in MODULES
    }
    graph["snaprebuild"] = set()  # its public names are loaded when they are asked for
    while leaves := {name for name, imported in graph.items() if not imported}:
        graph = {name: imported - leaves for name, imported in graph.items() if name not in leaves}
    assert graph == {}


def test_heavy_packages_are_imported_where_they_belong() -> None:
    wrong = []
    for _, path in MODULES:
        relative = path.relative_to(ROOT).as_posix()
        for package in {imported.split(".")[0] for imported in _imports(path)}:
            if package in ONLY_IN and not relative.startswith(ONLY_IN[package]):
                wrong.append(f"{relative} imports {package}")
            if relative.startswith("formats/") and package not in FORMATS_MAY_USE | {"formats"}:
                wrong.append(f"{relative} imports {package}: formats know no paths, clock or logging")
    assert not wrong


def test_the_command_line_imports_inside_functions_what_help_does_not_need() -> None:
    """A verb imports its work from ``cli.runs`` when it runs. That module has its imports at the top, and options need none."""
    inside = {
        (path.parent.name, imported.module or "")
        for _, path in MODULES
        if path.parent.parent.name == "cli"
        for function in ast.walk(_tree(path))
        if isinstance(function, ast.FunctionDef)
        for imported in ast.walk(function)
        if isinstance(imported, ast.ImportFrom)
    }
    assert {module.rpartition(".")[0] for folder, module in inside if folder == "verbs"} == {"snaprebuild.cli.runs"}
    assert {module for folder, module in inside if folder == "options"} <= IN_OPTIONS
    assert {module for folder, module in inside if folder == "runs"} <= IN_RUNS


IN_OPTIONS = {"snaprebuild.storage.io_limits.policy", "snaprebuild.storage.local.regular_file", "snaprebuild.cli.file_kinds"}
"""Limits are set before a verb runs, settings are read from a file, and the kind of a file that is named is recognized. A help text
needs none of these."""

IN_RUNS = {
    "snaprebuild.spark.job",
    "snaprebuild.spark.session",
    "snaprebuild.spark.effect_files",
    "snaprebuild.consume.record_rows",
    "snaprebuild.consume.record_export",
    "snaprebuild.spark.record_export",
}
"""Spark, or pyarrow, may not be installed."""


def test_docstrings_name_modules_that_exist() -> None:
    packages = {name.split(".")[1] for name in KNOWN if name.count(".") > 1 and name.startswith("snaprebuild.")}
    texts = {name: path.read_text() for name, path in MODULES}
    wrong, seen = [], 0
    for path in (path for _, path in MODULES):
        for found in re.finditer(r"``(snaprebuild\.|formats\.|operations\.)?([a-z_]+)((?:\.\w+)+)``", path.read_text()):
            if found[1] is None and found[2] not in packages:
                continue
            if found[0] in ("``broker.id``", "``spark.driver.maxResultSize``"):  # settings of Kafka and Spark
                continue
            seen += 1
            full = f"{found[1] or 'snaprebuild.'}{found[2]}{found[3]}"
            module, _, member = full.rpartition(".")
            text = texts.get(module, "")
            if full not in KNOWN and re.search(rf"^(?:(?:def|class) )?{member}\b", text, re.MULTILINE) is None:
                wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert seen >= 5
    assert wrong == []


NAMED_FILE = re.compile(r"`((?:\w+/)*\w+\.py)`(?: \(`(\w+)`)?")
"""A module in a page, and a name in it that the page gives in parentheses."""


def test_pages_about_the_code_name_modules_that_exist() -> None:
    texts = {
        f"/{path.relative_to(ROOT).as_posix()}": path.read_text()
        for folder in ("formats", "snaprebuild", "tests", "scripts")
        for path in python_files(ROOT / folder)
    }
    wrong, seen = [], 0
    for page in (ROOT / "docs/internals").glob("*.md"):
        for file, name in NAMED_FILE.findall(page.read_text()):
            seen += 1
            modules = [text for path, text in texts.items() if path.endswith(f"/{file}")]
            if not any(re.search(rf"\b{name}\b", text) for text in modules):
                wrong.append(f"{page.name}: {file} {name}".rstrip())
    assert seen > 100
    assert wrong == []


NAMED_PLACE = re.compile(r"(?<![\w/.-])((?:docs|scripts)/[\w./-]*\w)")
MADE_PLACES = {"docs/images/report"}
"""The beginning of names that a script makes."""


def test_pages_and_programs_that_are_named_exist() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "formats", "snaprebuild", "scripts", "docs/examples", "*.md", "*.toml", "*.yml"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    texts = {name: (ROOT / name).read_text(errors="replace") for name in listed if name}
    assert len(texts) > 600
    wrong = {
        f"{name}: {place}"
        for name, text in texts.items()
        for place in NAMED_PLACE.findall(text)
        if place not in MADE_PLACES and not (ROOT / place).exists()
    }
    assert wrong == set()


WITH_SPARK = "snaprebuild.spark"
"""Its modules import packages that are installed only with the extra `spark`."""

PACKAGES = ["formats", "snaprebuild", pytest.param(WITH_SPARK, marks=pytest.mark.full)]


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_names_exist(package: str) -> None:
    checked = 0
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".", onerror=_fail):
        if info.name.endswith("__main__") or info.ispkg or (info.name.startswith(f"{WITH_SPARK}.") and package != WITH_SPARK):
            continue
        module = importlib.import_module(info.name)
        checked += 1
        names = getattr(module, "__all__", None)
        assert names is not None, f"{info.name} does not say what it exports"
        assert sorted(set(names)) == sorted(names)
        missing = [name for name in names if not hasattr(module, name)]
        assert not missing, f"{info.name} exports what it does not have: {missing}"
    assert checked > 8


def _fail(package: str) -> None:
    raise AssertionError(f"{package} cannot be imported")


def test_no_file_mentions_anything_outside_of_the_project() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    words = re.compile(r"/w[o]rk/|\.\./s[h]ared|s[h]ared/reference|/r[o]ot/|pypi[.]org|repo1?[.]maven|issue #?\d+ of this project")
    for name in listed.stdout.decode().split("\0"):
        path = ROOT / name
        text_file = path.suffix in {".py", ".md", ".toml", ".java", ".xml", ".sh", ".yml", ""} and not name.startswith("fixtures/")
        if not name or not text_file or not path.is_file() or path == Path(__file__).resolve() or path.stat().st_size > 1 << 20:
            continue
        match = words.search(path.read_text(errors="replace"))
        assert match is None, f"{name} says {match.group(0)!r}"


TELLS = re.compile(r"(Finding|_finding|\bFate)\(")
"""Without one of these a module has no finding; to look at every node of all of them takes seconds."""


def test_every_finding_is_documented() -> None:
    trees = [_tree(path) for _, path in MODULES]
    constants = {
        target.id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    codes = {f"{klass}-boundary" for klass in ("unproven", "unsound")} | {
        f"{form}-directory" for form in ("delete", "stray", "future")
    }
    telling = [path for _, path in MODULES if TELLS.search(path.read_text())]
    calls = [node for path in telling for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
    for call in calls:
        if not call.args:
            continue
        called = call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")
        if called == "Finding" or called.endswith("_finding"):
            first = call.args[0]
            code = first.value if isinstance(first, ast.Constant) else constants.get(getattr(first, "id", ""))
            codes |= {code} if isinstance(code, str) else set()
    fates = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Fate"]
    of_fates = {
        word.value.value for call in fates for word in call.keywords if word.arg == "code" and isinstance(word.value, ast.Constant)
    }
    assert "lost-log-end" in of_fates
    codes |= of_fates
    assert {"busy-log", "gone-meanwhile", "missing-snapshots"} <= codes, "by a constant, and by a literal"
    catalogue = tomllib.loads((ROOT / "snaprebuild" / "findings_catalogue.toml").read_text())
    documented = {code for group in catalogue.values() if isinstance(group, dict) for code in group}
    assert codes <= documented, f"findings_catalogue.toml lacks {sorted(codes - documented)}"


def test_versions_agree() -> None:
    declared = re.search(r'^version = "([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared is not None
    assert declared.group(1) == snaprebuild.__version__
    assert f"## {snaprebuild.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    shown = subprocess.run([sys.executable, "-m", "snaprebuild", "--version"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert shown.stdout == f"snaprebuild {snaprebuild.__version__}\n"


@pytest.mark.parametrize("with_spark", [False, pytest.param(True, marks=pytest.mark.full)])
def test_scripts_import_what_is_there(with_spark: bool) -> None:
    """Nothing else looks at them before they are run."""
    for path in python_files(ROOT / "scripts"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("snaprebuild", "formats"):
                if (node.module or "").startswith(WITH_SPARK) != with_spark:
                    continue
                names = [name.name for name in node.names]
                module = importlib.__import__(node.module or "", fromlist=names)  # a name may be that of a module
                absent = [name for name in names if not hasattr(module, name)]
                assert not absent, f"{path.name}: {node.module} has no {absent}"


GIVEN = re.compile(r"^(\w+(?:, \w+)*)(?:: .+)? = ", re.MULTILINE)
"""Lines that look like an assignment of a module. Some of them are in a text."""


def test_no_name_of_a_module_means_two_things() -> None:
    """A constant further down in a file would change what functions above it mean, and no linter reports it."""
    for path in (each for folder in ("formats", "snaprebuild", "tests", "scripts") for each in python_files(ROOT / folder)):
        given = [name for names in GIVEN.findall(path.read_text()) for name in names.split(", ")]
        if len(set(given)) == len(given):
            continue  # to parse every file takes seconds
        body = _tree(path).body
        reported = [each.targets for each in body if isinstance(each, ast.Assign)]
        reported += [[each.target] for each in body if isinstance(each, ast.AnnAssign)]
        names = Counter(
            node.id for targets in reported for each in targets for node in ast.walk(each) if isinstance(node, ast.Name)
        )
        twice = [name for name, count in names.items() if count > 1]
        assert not twice, f"{path.relative_to(ROOT)} gives {twice} twice"


def test_no_number_of_a_rule_means_two_things() -> None:
    """One page lists the reasons of all findings, and messages name rules by their numbers."""
    catalogue = tomllib.loads((ROOT / "snaprebuild" / "findings_catalogue.toml").read_text())
    findings_of: dict[str, set[str]] = {}
    for finding, reasons in catalogue["reasons"].items():
        for text in reasons.values():
            for number in re.findall(r"\A[A-Z]\d+\b", text):
                findings_of.setdefault(number, set()).add(finding)
    assert len(findings_of) >= 20
    assert {number: findings for number, findings in findings_of.items() if len(findings) > 1} == {}


FUNCTION_LINES_MAX = 60
LONG_FUNCTIONS = {
    "snaprebuild/snapshots/source/source.py open_source": "the order in which the files of brokers are read",
    "snaprebuild/broker/partition_fates.py _log_end": "the ways in which a log may have lost its end, with the text of each fate",
}
"""Why each of them is longer than others may be."""


def test_functions_stay_short() -> None:
    """Functions of the product are counted without signature and docstring. A file is as long as its idea."""
    long = set()
    for path in (each for folder in ("formats", "snaprebuild") for each in python_files(ROOT / folder)):
        if path.read_bytes().count(b"\n") <= FUNCTION_LINES_MAX:
            continue
        for node in ast.walk(_tree(path)):
            if not isinstance(node, ast.FunctionDef):
                continue
            body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
            if body and (node.end_lineno or 0) - body[0].lineno >= FUNCTION_LINES_MAX:
                long.add(f"{path.relative_to(ROOT).as_posix()} {node.name}")
    assert long <= set(LONG_FUNCTIONS)


BUNDLED_BYTES_MAX = 24 << 20
BUNDLED_FILE_BYTES_MAX = 512 << 10
PREALLOCATED = {"damaged": 2, "kafka27-killed": 5}
"""How many segments there have their indexes as a killed broker had allocated them: 10 MiB each, holes on disk."""


def test_the_bundled_directories_stay_small() -> None:
    """By length, not by what a disk holds of it: for anyone who copies, sends or compares a file a hole is full of zeros."""
    sizes = {path: path.stat().st_size for path in (ROOT / "fixtures").rglob("*") if path.is_file()}
    large = {path: size for path, size in sizes.items() if size > BUNDLED_FILE_BYTES_MAX}
    for fixture, count in PREALLOCATED.items():
        for suffix, entry_bytes in ((".index", 8), (".timeindex", 12)):
            logs = ROOT / "fixtures" / fixture / "logs"
            allocated = {path for path in large if path.is_relative_to(logs) and path.suffix == suffix}
            assert len(allocated) == count
            assert {large.pop(path) for path in allocated} == {(10 << 20) // entry_bytes * entry_bytes}
            sizes = {path: size for path, size in sizes.items() if path not in allocated}
    assert not large, f"longer than {BUNDLED_FILE_BYTES_MAX} bytes"
    assert sum(sizes.values()) <= BUNDLED_BYTES_MAX


CREATES = {
    # The file of a snapshot, a lock, a partition of ``follower build``: what a broker knows.
    "snaprebuild/storage/local/publish.py",
    "snaprebuild/storage/local/file_calls.py",
    "snaprebuild/storage/local/new_directory.py",
    # Checked by ``log_dir_guard``, themselves or by what calls them.
    "snaprebuild/storage/local/directories.py",
    "snaprebuild/storage/local/document_file.py",
    "snaprebuild/storage/local/hard_links.py",
    "snaprebuild/storage/local/journal_file.py",
    "snaprebuild/storage/local/temporary_directory.py",
    "snaprebuild/spark/session.py",
    "snaprebuild/tier/audit/proven_snapshots.py",
    # The first prints help. The second writes to /proc which process the kernel may end when memory is short. The third writes to a pipe.
    "snaprebuild/cli/verb_command.py",
    "snaprebuild/storage/io_limits/policy.py",
    "formats/compression.py",
}
"""Modules that create files or directories. Nothing of ours may appear in a log directory, so each new one belongs into
``tests/faults/test_places.py``, too."""

CREATING = re.compile(
    r"O_CREAT|\bos\.(mkdir|makedirs|link|symlink|mkfifo|mknod)\(|\.(mkdir|touch|write_text|write_bytes|symlink_to|hardlink_to)\("
    r"|\bimport tempfile\b|\bopen\([^)]*, \"[wax]|ZipFile\([^)]*, \"[wax]"
)


def test_few_modules_create_files() -> None:
    creating = {
        path.relative_to(ROOT).as_posix()
        for _, path in MODULES
        if any(CREATING.search(line) for line in path.read_text().splitlines())
    }
    assert creating == CREATES


FLAT_TESTS_MAX = 12


def test_only_tests_of_the_whole_repository_are_flat() -> None:
    """Modules that tests import are in `tests/support`, tests of a package in the folder of that package."""
    flat = sorted(path.name for path in (ROOT / "tests").glob("*.py"))
    assert len(flat) <= FLAT_TESTS_MAX
    assert [name for name in flat if name != "conftest.py" and not name.startswith("test_")] == []
