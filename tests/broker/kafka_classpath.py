"""Real Apache Kafka on a class path: resolved by Maven, kept in a directory that git ignores.

As a command it prints the class path: ``python kafka_classpath.py [VERSION ...]``, or with ``all`` that of every version in use.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

KAFKA_VERSION = "4.3.1"
"""The version whose answers count, and the one that brokers are started from."""

OTHER_VERSIONS = ("3.9.2",)
"""Further versions that the oracle compiles and runs with."""

BEFORE_THE_LAST_CHANGE = "4.0.0"
"""Its classes take what those of 4.1 refuse."""

BEFORE_3 = ("2.4.1", "2.5.1", "2.7.2")
"""The last that refuses unknown producers, the first that takes them, the first with the newer exception."""

HERE = Path(__file__).resolve().parent
JAVA_SOURCES = HERE / "java"
CACHE = HERE / ".java"
MAVEN_SECONDS = 900.0
JAVAC_SECONDS = 180.0


class KafkaUnavailableError(Exception):
    """Java or Maven is missing, or cannot provide Kafka."""


def missing_tools() -> list[str]:
    """The commands that are not on PATH, of those that real Kafka needs."""
    return [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]


def kafka_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path of a Kafka version: broker, and since 3.0 tools, storage with its test classes. The first call for it downloads it."""
    pom = JAVA_SOURCES / ("before3.xml" if version.startswith("2.") else "pom.xml")
    cached = CACHE / f"classpath-{version}-{_digest(pom.read_bytes())}.txt"
    with _one_at_a_time(f"classpath-{version}"):
        if cached.is_file():
            classpath = cached.read_text().strip()
            if all(Path(jar).is_file() for jar in classpath.split(os.pathsep)):
                return classpath
        fresh = cached.with_suffix(".tmp")
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dkafka.version={version}"]
        _run([*command, f"-Dmdep.outputFile={fresh}"], MAVEN_SECONDS)
        fresh.replace(cached)
        return cached.read_text().strip()


def kafka_jar(artifact: str, version: str) -> Path:
    """One jar of a release, of which the others may not be there."""
    jar = CACHE / f"{artifact}-{version}.jar"
    with _one_at_a_time(jar.stem):
        if not jar.is_file():
            command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact=org.apache.kafka:{artifact}:{version}"]
            _run([*command, f"-DoutputDirectory={CACHE}"], MAVEN_SECONDS)
    return jar


def oracle_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path of the compiled ``ProducerStateOracle`` and the Kafka version that it was compiled with."""
    classpath = kafka_classpath(version)
    source = (JAVA_SOURCES / "ProducerStateOracle.java").read_text()
    if version.startswith(("3.", "4.0.", "4.1.", "4.2.")):
        # 4.3 moved the record classes; nothing else differs.
        source = source.replace("org.apache.kafka.common.record.internal.", "org.apache.kafka.common.record.")
    classes = CACHE / f"oracle-{version}-{_digest(source.encode(), classpath.encode())}"
    with _one_at_a_time(f"oracle-{version}"):
        if not classes.is_dir():
            fresh = classes.with_suffix(".tmp")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            (fresh / "ProducerStateOracle.java").write_text(source)
            command = ["javac", "-d", str(fresh), "-cp", classpath, str(fresh / "ProducerStateOracle.java")]
            _run(command, JAVAC_SECONDS)
            fresh.rename(classes)
    return f"{classes}{os.pathsep}{classpath}"


def java_program(*names: str, version: str = KAFKA_VERSION) -> list[str]:
    """The command that runs the last of some classes of our own, by the names of their files: its arguments go behind it."""
    source = (JAVA_SOURCES / f"{names[-1]}.java").read_text()
    package = re.match(r"package (.+);\n", source)
    main = f"{package[1]}.{names[-1]}" if package else names[-1]
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return [*command, "-cp", compiled_classpath(*names, version=version), main]


def compiled_classpath(*names: str, version: str = KAFKA_VERSION) -> str:
    """Class path of classes of our own, by the names of their files, and of a Kafka version: they may be of its packages."""
    classpath = kafka_classpath(version)
    sources = [JAVA_SOURCES / f"{name}.java" for name in names]
    classes = CACHE / f"{names[-1]}-{_digest(classpath.encode(), *(source.read_bytes() for source in sources))}"
    with _one_at_a_time(classes.name):
        if not classes.is_dir():
            fresh = classes.with_suffix(".tmp")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            _run(["javac", "-d", str(fresh), "-cp", classpath, *map(str, sources)], JAVAC_SECONDS)
            fresh.rename(classes)
    return f"{classes}{os.pathsep}{classpath}"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


@contextlib.contextmanager
def _one_at_a_time(name: str) -> Iterator[None]:
    """Several test processes may want the same class path at once."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str], seconds: float) -> None:
    if missing := missing_tools():
        raise KafkaUnavailableError(f"not on PATH: {', '.join(missing)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaUnavailableError(f"{command[0]} did not end within {seconds:.0f} s") from None
    if done.returncode:
        raise KafkaUnavailableError(f"{command[0]} failed ({done.returncode}): {(done.stdout + done.stderr)[-2000:]}")


if __name__ == "__main__":
    everything = [KAFKA_VERSION, *OTHER_VERSIONS, BEFORE_THE_LAST_CHANGE, *BEFORE_3]
    for wanted in everything if sys.argv[1:] == ["all"] else sys.argv[1:] or [KAFKA_VERSION]:
        sys.stdout.write(kafka_classpath(wanted) + "\n")
