"""Real Apache Kafka on a class path: resolved by Maven, kept in a directory that git ignores.

As a command it prints the class path: ``python kafka_classpath.py [VERSION ...]``, or with ``all`` that of every version in use. With
``--record`` it takes the jars as they come and lists their checksums, instead of comparing them with those that are listed.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

KAFKA_VERSION = "4.3.1"
"""The version whose answers count, and the one that brokers are started from."""

OTHER_VERSIONS = ("3.9.2",)
"""Further versions that the oracle compiles and runs with."""

NEWEST_BROKER = "4.4.0"
"""The newest release of which the broker alone can be had: neither its tools, nor the test jars with LocalTieredStorage."""

LENT = tuple(f"{name}.jar" for name in ("kafka-storage-4.3.1-test", "kafka-clients-4.3.1-test", "kafka-clients-4.3.1"))
"""Gives it LocalTieredStorage: the class, and two more that it uses. They follow its own jars, which so take precedence."""

CATALOGUED = (
    *("2.4.1", "2.5.1", "2.6.3", "2.7.2", "2.8.2", "3.0.2", "3.1.2", "3.2.3", "3.3.2", "3.4.1"),
    *("3.5.2", "3.6.2", "3.7.2", "3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2", "4.3.1", "4.4.0"),
)
"""The last patch release of each release that README promises: ``scripts/kafka/release_catalogue.py`` writes what they know."""

FIRST_WITH_TIERING = "3.6.2"
"""The oldest brokers with remote storage that are started."""

BEFORE_THE_LAST_CHANGE = "4.0.0"
"""Its classes take what those of 4.1 refuse."""

BEFORE_3 = ("2.4.1", "2.5.1", "2.7.2")
"""The last that refuses unknown producers, the first that takes them, the first with the newer exception."""

WITH_TOOLS = (FIRST_WITH_TIERING, *OTHER_VERSIONS, BEFORE_THE_LAST_CHANGE, KAFKA_VERSION)
"""Releases from 3.0 on whose tools and test jars are used. Of all others the broker alone is."""

HERE = Path(__file__).resolve().parent
JAVA_SOURCES = HERE / "java"
CACHE = HERE / ".java"
CHECKSUMS = JAVA_SOURCES / "jars.sha256"
MAVEN = ("mvn", "--batch-mode", "--quiet", "--strict-checksums")
MAVEN_SECONDS = 900.0
JAVAC_SECONDS = 180.0
JAVA_SECONDS = 400.0


class KafkaUnavailableError(Exception):
    """Java or Maven is missing, or cannot provide Kafka."""


def missing_tools() -> list[str]:
    """The commands that are not on PATH, of those that real Kafka needs."""
    return [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]


def kafka_classpath(version: str = KAFKA_VERSION, *, record: bool = False) -> str:
    """Class path of a Kafka version: broker, and mostly tools and storage with its test classes (``java/*.xml``). The first call for it
    downloads it, and compares every jar with the checksum that is listed; or lists it, if asked to ``record``."""
    is_broker_alone = version.startswith("2.") or version not in WITH_TOOLS
    pom = JAVA_SOURCES / ("core.xml" if is_broker_alone else "pom.xml")
    cached = CACHE / f"classpath-{version}-{_digest(pom.read_bytes())}.txt"
    with _one_at_a_time(f"classpath-{version}"):
        if cached.is_file():
            classpath = cached.read_text().strip()
            if all(Path(jar).is_file() for jar in classpath.split(os.pathsep)):
                return classpath
        fresh = cached.with_suffix(".tmp")
        classpath = _resolve(pom, version, fresh, profiles=["-Plog4j1"] if version.startswith("3.") and not is_broker_alone else [])
        jars = [Path(jar) for jar in classpath.split(os.pathsep)]
        if record:
            record_jars(jars)
        check_jars(jars)
        fresh.replace(cached)
        return classpath


def unlisted_classpath(version: str, place: Path) -> str:
    """Class path of the broker of a release whose jars are not listed yet. It is not kept.

    Args:
        version: of Kafka.
        place: directory for the file that Maven writes.
    """
    return _resolve(JAVA_SOURCES / "core.xml", version, place / f"classpath-{version}.txt", profiles=[])


def served_versions(place: Path) -> list[str]:
    """Every version of the broker that the registry serves, as it reports them now: that of this machine's Maven.

    Args:
        place: an empty directory, for the files of this question.
    """
    pom, found = place / "pom.xml", place / "classpath.txt"
    pom.write_text((JAVA_SOURCES / "newer.xml").read_text())
    # A range makes Maven fetch the list of versions; the jar that it leads to only shows where Maven keeps that list.
    command = [*MAVEN, "-U", "-f", str(pom), "dependency:build-classpath", f"-Dkafka.version=[{CATALOGUED[-1]},)"]
    _run([*command, f"-Dmdep.outputFile={found}"], MAVEN_SECONDS)
    (artifact,) = {Path(path).parent.parent for path in found.read_text().strip().split(os.pathsep)}
    lists = sorted(artifact.glob("maven-metadata-*.xml"))
    if not lists:
        raise KafkaUnavailableError(f"Maven left no list of versions in {artifact}")
    return sorted({version for path in lists for version in re.findall(r"<version>([^<]+)</version>", path.read_text())})


def _resolve(pom: Path, version: str, output: Path, *, profiles: list[str]) -> str:
    command = [*MAVEN, "-f", str(pom), "dependency:build-classpath", f"-Dkafka.version={version}", *profiles]
    _run([*command, f"-Dmdep.outputFile={output}"], MAVEN_SECONDS)
    return output.read_text().strip()


def compiled_without_kafka(name: str) -> Path:
    """Directory with a class of our own that finds Kafka's classes while it runs, and so suits every release.

    Args:
        name: of its file.
    """
    source = JAVA_SOURCES / f"{name}.java"
    classes = CACHE / f"{name}-{_digest(source.read_bytes())}"
    with _one_at_a_time(classes.name):
        if not classes.is_dir():
            fresh = classes.with_suffix(".tmp")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            _run(["javac", "-d", str(fresh), str(source)], JAVAC_SECONDS)
            fresh.rename(classes)
    return classes


def tiering_classpath(version: str) -> str:
    """Class path of a broker of a Kafka version that has LocalTieredStorage."""
    classpath = kafka_classpath(version)
    if version != NEWEST_BROKER:
        return classpath
    lent = [jar for jar in kafka_classpath(KAFKA_VERSION).split(os.pathsep) if Path(jar).name in LENT]
    assert len(lent) == len(LENT), lent
    return os.pathsep.join((classpath, *lent))


def check_jars(jars: Iterable[Path]) -> None:
    """Compares jars with the checksums that are kept here.

    Raises:
        KafkaUnavailableError: one is not listed, or is another file than the one that was.
    """
    known = dict(line.split("  ")[::-1] for line in CHECKSUMS.read_text().splitlines())
    for jar in jars:
        if jar.name not in known:
            raise KafkaUnavailableError(
                f"{jar} is not listed in {CHECKSUMS.name} (scripts/kafka/classpath --record VERSION lists it)"
            )
        found = _sha256(jar)
        if found != known[jar.name]:
            raise KafkaUnavailableError(f"{jar}: SHA-256 {known[jar.name]} expected, {found} found")


def record_jars(jars: Iterable[Path]) -> None:
    """Adds jars, as they are now, to those that are listed."""
    known = {line.partition("  ")[2]: line.partition("  ")[0] for line in CHECKSUMS.read_text().splitlines()}
    known |= {jar.name: _sha256(jar) for jar in jars}
    CHECKSUMS.write_text("".join(f"{known[name]}  {name}\n" for name in sorted(known)))


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def oracle_classpath(version: str = KAFKA_VERSION) -> str:
    """Class path of the compiled oracle (``oracle_main``) and the Kafka version that it was compiled with."""
    classpath = kafka_classpath(version)
    sources = {f"{name}.java": _source(name, version) for name in ("LogReplay", oracle_main(version))}
    classes = CACHE / f"oracle-{version}-{_digest(*(source.encode() for source in sources.values()), classpath.encode())}"
    with _one_at_a_time(f"oracle-{version}"):
        if not classes.is_dir():
            _compile(sources, classpath, classes)
    return f"{classes}{os.pathsep}{classpath}"


def _compile(sources: dict[str, str], classpath: str, classes: Path) -> None:
    """Compiles sources, by the names of their files, into a directory."""
    fresh = classes.with_suffix(".tmp")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for name, source in sources.items():
        (fresh / name).write_text(source)
    _run(["javac", "-d", str(fresh), "-cp", classpath, *(str(fresh / name) for name in sources)], JAVAC_SECONDS)
    fresh.rename(classes)


def _source(name: str, version: str) -> str:
    """The source of one of our classes for a release: 4.3 moved the record classes to another package, 4.4 some others. Nothing
    else differs."""
    source, release = (JAVA_SOURCES / f"{name}.java").read_text(), tuple(map(int, version.split(".")[:2]))
    if release < (4, 3):
        source = source.replace("org.apache.kafka.common.record.internal.", "org.apache.kafka.common.record.")
    if release >= (4, 4):
        source = re.sub(
            r"org\.apache\.kafka\.common\.utils\.(AppInfoParser|Exit|LogContext);",
            r"org.apache.kafka.common.utils.internals.\1;",
            source,
        )
    return source


def oracle_main(version: str) -> str:
    """The class that answers: the producer state of releases before 3.0 is of other classes, and is asked for replays alone."""
    return "OracleBefore3" if version.startswith("2.") else "ProducerStateOracle"


def java_program(*names: str, version: str = KAFKA_VERSION) -> list[str]:
    """The command that runs the last of some classes of our own, by the names of their files: its arguments go after it."""
    source = (JAVA_SOURCES / f"{names[-1]}.java").read_text()
    package = re.match(r"package (.+);\n", source)
    main = f"{package[1]}.{names[-1]}" if package else names[-1]
    command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
    return [*command, "-cp", compiled_classpath(*names, version=version), main]


def java_output(
    *names: str, arguments: Iterable[object] = (), lines: Iterable[object] = (), version: str = KAFKA_VERSION
) -> list[str]:
    """The lines that such a program prints, which is asked by lines. Its failure is the error of the test."""
    command = [*java_program(*names, version=version), *map(str, arguments)]
    asked = "\n".join(map(str, lines))
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=JAVA_SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def compiled_classpath(*names: str, version: str = KAFKA_VERSION) -> str:
    """Class path of classes of our own, by the names of their files, and of a Kafka version: they may be of its packages."""
    classpath = kafka_classpath(version)
    sources = {f"{name}.java": _source(name, version) for name in names}
    classes = CACHE / f"{names[-1]}-{_digest(classpath.encode(), *(source.encode() for source in sources.values()))}"
    with _one_at_a_time(classes.name):
        if not classes.is_dir():
            _compile(sources, classpath, classes)
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


REPLAYED = ("2.7.2", FIRST_WITH_TIERING, "3.9.2", KAFKA_VERSION, NEWEST_BROKER)
"""Releases whose replays of generated logs are compared with ours."""

LOADED = ("2.8.2", "3.6.1", FIRST_WITH_TIERING, "3.7.0", "3.7.2", *OTHER_VERSIONS, KAFKA_VERSION, NEWEST_BROKER)
"""Releases whose log manager loads each state of a start. 3.7.0 is the last before strays were set aside while they are loaded."""

EVERYTHING = tuple(dict.fromkeys((KAFKA_VERSION, *OTHER_VERSIONS, NEWEST_BROKER, BEFORE_THE_LAST_CHANGE, *BEFORE_3, *LOADED)))

if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--record"]
    for wanted in EVERYTHING if arguments == ["all"] else arguments or [KAFKA_VERSION]:
        sys.stdout.write(kafka_classpath(wanted, record="--record" in sys.argv) + "\n")
