"""A Spark session for the command line: what it needs, and what it is told."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from pyspark.sql import SparkSession

import formats
import snaprebuild
from snaprebuild.errors import StorageError, UsageError

__all__ = ["check_java", "code_archive", "opened_session", "ship_code"]

SETTINGS = {
    "spark.ui.showConsoleProgress": "false",  # stderr carries our own bar
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Tasks of Python cost less behind a socket of the file system; releases before 4.1 do not know it.
    "spark.python.unix.domain.socket.enabled": "true",
}
"""Where the session is ours. Each can be set otherwise by ``spark-submit --conf`` or ``spark-defaults.conf``."""


def check_java() -> None:
    """Spark is a Java program.

    Raises:
        UsageError: there is no Java.
    """
    home = os.environ.get("JAVA_HOME")
    if home is not None and os.access(os.path.join(home, "bin", "java"), os.X_OK):
        return
    if shutil.which("java") is None:
        where = "no java on the PATH" if home is None else f"no java in JAVA_HOME ({home}) or on the PATH"
        raise UsageError(f"Spark needs Java 17 or newer, and there is {where}: install one (Debian: openjdk-17-jre-headless)")


@contextlib.contextmanager
def opened_session(master: str | None) -> Iterator[SparkSession]:
    """A session of our own, ended afterwards; or the one that runs already, which is left alone.

    Args:
        master: where it runs; None for what ``spark-submit`` says, else all cores of this machine.

    Raises:
        UsageError: there is no Java, or Spark does not start.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    check_java()
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName("snaprebuild")
    if not is_submitted:
        builder = builder.master(master or os.environ.get("SPARK_MASTER", "local[*]"))
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if master is None or master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        for key, value in {**SETTINGS, "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_settings()}"}.items():
            builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:  # py4j tells all of it in one class
        raise UsageError(f"Spark does not start: {str(error).strip().splitlines()[0]}") from error
    try:
        ship_code(session)
        yield session
    finally:
        if not is_submitted:
            session.stop()


def _log_settings() -> str:
    return Path(str(resources.files("snaprebuild.spark") / "log4j2.properties")).as_uri()


def ship_code(session: SparkSession) -> None:
    """Lets the Python workers of executors on other machines import this package; they need its dependencies beside it.

    Raises:
        StorageError: no archive can be written.
    """
    context = session.sparkContext
    if not str(context.master).startswith("local"):
        directory = tempfile.mkdtemp(prefix="snaprebuild-")
        try:
            context.addPyFile(code_archive(directory))
        finally:
            shutil.rmtree(directory, ignore_errors=True)


def code_archive(directory: str) -> str:
    """Writes the code of this package, as it is imported here, into a zip archive; ``spark-submit --py-files`` takes it.

    Raises:
        StorageError: it cannot be written.
    """
    path = os.path.join(directory, f"snaprebuild-{snaprebuild.__version__}.zip")
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for package in (snaprebuild, formats):
                root = Path(package.__path__[0])
                for file in sorted(root.rglob("*")):
                    if file.is_file() and "__pycache__" not in file.parts:
                        archive.write(file, os.path.join(package.__name__, file.relative_to(root)))
    except OSError as error:
        raise StorageError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error
    return path
