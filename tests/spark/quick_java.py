"""Java of Spark that starts in half the processor time: with one compiler, and with classes as an earlier start left them."""

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

from manifests import REPOSITORY
from waiting import SECONDS_MAX

__all__ = ["JAVA_OPTIONS", "with_archive"]

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For ``JDK_JAVA_OPTIONS``, which each Java takes. Java compiles once: its programs end before a second time would pay."""

CACHE = Path(__file__).resolve().parent / ".java"

SMALL_RUN = """
from pyspark import SparkContext
from snaprebuild.spark.session import opened_session

def same(batches):
    yield from batches

with opened_session("local[2]", {{"spark.driver.extraJavaOptions": "-XX:ArchiveClassesAtExit={archive}"}}) as session:
    numbers = session.range(8).repartition(2).mapInArrow(same, "id long")
    numbers.createOrReplaceTempView("numbers")
    assert session.sql("SELECT count(DISTINCT id) AS n FROM numbers WHERE id > 3").collect()[0].n == 4
java = SparkContext._gateway.proc
SparkContext._gateway.shutdown()
java.stdin.close()
java.wait()
"""
"""Java leaves its classes when it has ended."""


def with_archive() -> str:
    """`JAVA_OPTIONS` with an archive of the classes that a small run needs, which is made once for an installation of Spark and of Java.

    Java looks at nothing in an archive that is not of its jars, and then loads its classes from those.
    """
    import pyspark  # the quick tier has none

    jars = Path(pyspark.__path__[0], "jars")
    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    name = hashlib.sha256(f"{jars} {jars.stat().st_mtime_ns} {pyspark.__version__}".encode() + java).hexdigest()[:12]
    archive = CACHE / f"spark-{name}.jsa"
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
    return f"{JAVA_OPTIONS} -XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off"


def _make(archive: Path) -> None:
    partial = archive.with_suffix(".tmp")
    partial.unlink(missing_ok=True)
    places = ":".join(map(str, (REPOSITORY, *filter(None, [os.environ.get("PYTHONPATH")]))))
    subprocess.run(
        [sys.executable, "-c", SMALL_RUN.format(archive=partial)],
        env={**os.environ, "JDK_JAVA_OPTIONS": JAVA_OPTIONS, "PYTHONPATH": places, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    partial.replace(archive)
