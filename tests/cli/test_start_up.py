"""Modules are loaded when they are needed, schemas belong to their verbs, and the server of workers is started early if at all."""

import inspect
import json
import os
import re
import signal
import subprocess
import sys
import threading
from multiprocessing import forkserver
from pathlib import Path

import click
import command
import pytest
import typer
from budgets import first_of
from documents import validator_of
from manifests import REPOSITORY
from sentences import CANNOT_BE_LOADED

import snaprebuild
from snaprebuild.cli import loading
from snaprebuild.cli.loading import LOOKED_AT_MAX, start_early
from snaprebuild.cli.main import app, verbs
from snaprebuild.cli.verb_command import VerbGroup
from snaprebuild.snapshots.engine import worker_start

HEAVY = ("pyspark", "boto3", "pandas", "numpy", "construct", "rich", "crcmod")
LISTS = "import json, sys; {}; sys.stderr.write(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"


def loaded_after(statement: str) -> set[str]:
    command = [sys.executable, "-c", LISTS.format(statement)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return set(json.loads(done.stderr))


RUNS = """import atexit, runpy
def tell():
    sys.stderr.write(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))
atexit.register(tell)
runpy.run_module("snaprebuild", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "arguments",
    [["--version"], ["--help"], ["tier", "--help"], ["scan", "--help"], ["inspect", "dump", "--help"], ["tier", "audit", "--help"]],
    ids=" ".join,
)
def test_help_and_version_load_nothing_heavy(arguments: list[str]) -> None:
    script = f"import json, sys\nsys.argv[1:] = {arguments!r}\n{RUNS}"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    assert "typer" in loaded
    assert not loaded & set(HEAVY)
    assert done.stdout
    assert arguments != ["--version"] or done.stdout == f"snaprebuild {snaprebuild.__version__}\n"


def test_no_help_loads_the_work_of_its_verb() -> None:
    script = "import json, sys; from snaprebuild.cli.main import verbs; words = list(verbs())\n"
    script += "sys.stderr.write(json.dumps([words, sorted(sys.modules)]))"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    words, modules = json.loads(done.stderr)
    assert len(words) >= 29
    assert "snaprebuild.cli.verbs.rebuild" in modules
    work = (
        "snaprebuild.cli.runs",
        "snaprebuild.cli.render",
        "snaprebuild.cli.output",
        "snaprebuild.cli.printing",
        "snaprebuild.storage.store",
    )
    assert not [name for name in modules if name.startswith(work) or name.partition(".")[0] in HEAVY]


def modules_after(*arguments: str) -> set[str]:
    """Modules of verbs that a run has loaded at its end."""
    known = {verb.module for group in VerbGroup.verbs.values() for verb in group.values()}
    return {name.removeprefix("snaprebuild.cli.verbs.") for name in all_modules_after(*arguments)} & known


def all_modules_after(*arguments: str) -> set[str]:
    """Everything that a run has loaded at its end."""
    whole_names = RUNS.replace(".split('.')[0]", "")
    script = f"import json, sys\nsys.argv[1:] = {list(arguments)!r}\n{whole_names}"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_only_the_verb_that_is_asked_for_is_loaded() -> None:
    assert modules_after("--help") == set()
    assert modules_after("tier", "--help") == set()
    assert modules_after("tire") == set()  # an error that suggests another
    assert modules_after("inspect", "dump", "--help") == {"inspect_dump"}
    assert modules_after("tier", "inventory", "--help") == {"tier_inventory"}


@pytest.mark.full
def test_what_reads_a_metadata_log_is_loaded_where_there_is_one() -> None:
    reader = "snaprebuild.cluster.metadata.image_reader"
    assert reader not in all_modules_after("plan", "fixtures/kafka27-mixed/logs", "--boundaries", "all")
    assert reader in all_modules_after("plan", "fixtures/kraft-cluster3/node1", "--boundaries", "all")


@pytest.mark.parametrize(("words", "rests"), [(["scan", "--help"], True), (["scan", "fixtures/magic1/logs"], False)])
def test_the_collector_of_cycles_rests_until_a_verb_works(words: list[str], rests: bool) -> None:
    script = f"import atexit, gc, runpy, sys\nsys.argv[1:] = {words!r}\nusual = gc.get_threshold()\n"
    script += "shown = lambda: f'\\n{gc.get_threshold() == usual} {gc.get_freeze_count() > 0} {gc.isenabled()}'\n"
    script += "atexit.register(lambda: sys.stderr.write(shown()))\n"
    script += "runpy.run_module('snaprebuild', run_name='__main__', alter_sys=True)"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"{not rests} {not rests} True"


def test_the_list_says_what_the_verbs_say() -> None:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    groups = {"snaprebuild": root} | {name: each for name, each in root.commands.items() if isinstance(each, click.Group)}
    every = verbs()
    assert set(groups) == set(VerbGroup.verbs)
    seen = 0
    for name in groups:
        for own_name, verb in VerbGroup.verbs[name].items():
            command = every[own_name if name == "snaprebuild" else f"{name} {own_name}"]
            assert (command.name, command.short_help) == (own_name, verb.short_help)
            (whole,) = inspect.getdoc(command.callback).splitlines()[:1]  # type: ignore[union-attr]
            is_reading = verb.changes in ("nothing", "one new file")
            assert (whole.split()[0] == "Reads") == is_reading, (
                f"{name} {own_name}: changes {verb.changes}, its help says {whole!r}"
            )
            assert is_reading or whole.split()[0] in ("WRITES", "REMOVES")
            seen += 1
    assert seen >= 29


def test_importing_the_library_loads_nothing() -> None:
    assert not loaded_after("import snaprebuild") & {"typer", "rich", "numpy", "boto3", "pyspark", "construct", "pandas"}


def test_a_run_loads_neither_spark_nor_storage_clients(tmp_path: Path) -> None:
    script = (
        f"import json, sys\nsys.argv[1:] = ['rebuild', 'fixtures/magic0', '--out', {str(tmp_path)!r}, '--output', 'json']\n{RUNS}"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stderr))
    assert "numpy" in loaded
    assert not loaded & {"pyspark", "boto3", "pandas", "rich"}


DATACLASSES = """import atexit, runpy
def tell():
    values = [value for name, module in list(sys.modules.items()) if name.startswith(OURS) for value in vars(module).values()]
    found = {value.__qualname__ for value in values if isinstance(value, type) and "__dataclass_fields__" in vars(value)}
    sys.stderr.write(json.dumps(sorted(found)))
atexit.register(tell)
runpy.run_module("snaprebuild", run_name="__main__", alter_sys=True)
"""
DATACLASSES_MAX = 12


@pytest.mark.parametrize("words", ["rebuild DIR --out OUT", "plan DIR", "scan DIR", "verify DIR"])
def test_a_run_defines_few_dataclasses(words: str, tmp_path: Path) -> None:
    """Each takes nearly a millisecond, and a struct a fiftieth of that."""
    places = {"DIR": "fixtures/magic0", "OUT": str(tmp_path)}
    arguments = [places.get(word, word) for word in words.split()] + ["--output", "json"]
    script = f"import json, sys\nsys.argv[1:] = {arguments!r}\nOURS = ('formats', 'snaprebuild')\n{DATACLASSES}"
    done = subprocess.run([sys.executable, "-c", script], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    found = json.loads(done.stderr.splitlines()[-1])
    assert "LocalStore" in found
    assert len(found) <= DATACLASSES_MAX, found


def test_the_contract_is_printed() -> None:
    page = command.snaprebuild("--help").stdout
    for words in ("It only reads, and the broker may run", "Exit codes: 0 done or nothing found"):
        assert words in page
    for verb in verbs():
        assert f" {verb.split()[0]} " in page


# --- schemas ---------------------------------------------------------------------------------------------------------------


def objects(schema: object) -> list[dict[str, object]]:
    """Every description of an object with named fields inside a schema."""
    found = []
    if isinstance(schema, dict):
        if schema.get("type") == "object" and "properties" in schema:
            found.append(schema)
        for value in schema.values():
            found += objects(value)
    elif isinstance(schema, list):
        for value in schema:
            found += objects(value)
    return found


@pytest.mark.parametrize(
    "verb", sorted({each.replace(" ", "-") for each in verbs()} - {"stage", "inspect-dump"} | {"verify-receipt"})
)
def test_schemas_are_strict(verb: str) -> None:
    schema = validator_of(verb).schema
    described = objects(schema)
    assert len(described) >= 3
    for each in described:
        assert each["additionalProperties"] is False
        assert each["required"] == list(each["properties"])  # type: ignore[call-overload]
    assert re.fullmatch(rf"snaprebuild\.{verb}/[0-9]+", schema["properties"]["schema"]["const"])


LARGE = worker_start.IN_PROCESS_BYTES_MAX + 1


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(worker_start, "start_server", lambda: found.append("started"))
    return found


def log_dir(root: Path, size_bytes: int) -> str:
    partition = root / "log" / "t-0"
    partition.mkdir(parents=True)
    for base in (0, 10):
        os.truncate(os.open(partition / f"{base:020d}.log", os.O_CREAT | os.O_WRONLY), size_bytes // 2 + 1)
    (partition / f"{0:020d}.index").write_bytes(bytes(100))
    return str(root / "log")


@pytest.mark.parametrize(
    ("words", "is_started"),
    [
        (("rebuild", "{}", "--out", "/nonexistent"), True),
        (("rebuild", "{}/t-0", "--dry-run"), True),
        (("--set", "rate=1", "inspect", "stats", "{}"), False),  # found when it is needed
        (("inspect", "stats", "{}"), True),
        (("verify", "/nonexistent", "{}"), True),
        (("verify", "{}", "--jobs", "1"), False),
        (("scan", "{}"), False),
        (("plan", "{}"), False),
        (("verify",), False),
        (("verify", "s3://bucket/prefix"), False),
        ((), False),
    ],
)
def test_who_starts_it(words: tuple[str, ...], is_started: bool, tmp_path: Path, starts: list[str]) -> None:
    root = log_dir(tmp_path, LARGE)
    start_early([word.format(root) for word in words])
    assert bool(starts) == is_started


def test_little_is_read_by_the_process_itself(tmp_path: Path, starts: list[str]) -> None:
    start_early(["verify", log_dir(tmp_path, LARGE - 10)])
    assert not starts


def test_links_are_not_followed_and_the_search_ends(tmp_path: Path, starts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(log_dir(tmp_path, LARGE))
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "t-0").symlink_to(root / "t-0")
    for base in (0, 10):
        (linked / f"{base:020d}.log").symlink_to(root / "t-0" / f"{base:020d}.log")
    start_early(["verify", str(linked)])
    assert not starts
    monkeypatch.setattr(loading, "LOOKED_AT_MAX", 1)
    start_early(["verify", str(root)])
    assert not starts
    assert LOOKED_AT_MAX >= 1000


def test_ctrl_c_while_the_server_of_workers_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits until the server is started, and is not lost."""
    started = []

    def interrupted() -> None:
        # To this thread: a signal to the process may interrupt another one, after which this one may be interrupted at any time.
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        started.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))

    monkeypatch.setattr(forkserver, "ensure_running", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker_start.start_server()
    assert started == [True]


@pytest.mark.parametrize("error", [MemoryError(), ImportError("no memory for a library")], ids=["memory", "import"])
def test_a_command_that_cannot_be_loaded(error: Exception) -> None:
    """Its exit code is not that of findings, as Python's would be."""
    code = "import sys\nsys.argv = ['snaprebuild', '--version']\nimport snaprebuild.__main__ as it\n"
    fail = f"class Finder:\n def find_spec(self, name, *rest):\n  if name == 'typer': raise {error!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", code + fail + "sys.meta_path.insert(0, Finder())\nit.main()"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr == f"{CANNOT_BE_LOADED}{type(error).__name__}: {error}\n"


@pytest.mark.parametrize("own", first_of([None, "3"]))
def test_numpy_starts_no_threads(own: str | None) -> None:
    """OpenBLAS would start one for each processor, and end the process by an interrupt where a limit leaves no room for them."""
    script = "import atexit, os, runpy, sys\nsys.argv[1:] = ['scan', 'fixtures/magic1/logs']\n"
    script += "atexit.register(lambda: sys.stderr.write('\\n' + os.environ['OPENBLAS_NUM_THREADS']))\n"
    script += "runpy.run_module('snaprebuild', run_name='__main__', alter_sys=True)"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if own is None else {"OPENBLAS_NUM_THREADS": own}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1] == (own or "1")
