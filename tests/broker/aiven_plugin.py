"""Aiven's real plugin for remote storage, compiled from its sources for a release of Kafka: its jars are on no registry.

The sources are those of one commit. ``AIVEN_PLUGIN_SOURCE`` names a clone of the repository; else the commit is fetched from GitHub.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kafka_classpath import (
    CACHE,
    JAVA_SOURCES,
    JAVAC_SECONDS,
    MAVEN,
    MAVEN_SECONDS,
    KafkaUnavailableError,
    _digest,
    _one_at_a_time,
    _run,
    check_jars,
    kafka_classpath,
)

COMMIT = "8fb15816df2d0b3f880b76e5ac0a14b64dd790d9"
"""The commit of May 2026 that wrote ``fixtures/aiven-layout``."""
REPOSITORY = "https://github.com/Aiven-Open/tiered-storage-for-apache-kafka.git"
MODULES = ("commons", "core", "storage/core", "storage/filesystem", "storage/s3")
STAND_INS = JAVA_SOURCES / "aiven"
CLASS_NAME = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
STORAGE = "io.aiven.kafka.tieredstorage.storage"
GIT_SECONDS = 300.0


def plugin_classpath(version: str) -> str:
    """The classes of the plugin for a release of Kafka, and the jars that they need: what goes before those of Kafka.

    Raises:
        KafkaUnavailableError: neither the sources nor the jars can be had, or a jar is another one than is listed.
    """
    jars = _jars()
    key = _digest(COMMIT.encode(), version.encode(), jars.encode(), *(each.read_bytes() for each in sorted(STAND_INS.iterdir())))
    classes = CACHE / f"aiven-{version}-{key}"
    with _one_at_a_time(classes.name):
        if not classes.is_dir():
            fresh = classes.with_suffix(".tmp")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir(parents=True)
            sources = _sources(version, fresh / "sources")
            classpath = os.pathsep.join((jars, kafka_classpath(version)))
            _run(["javac", "-nowarn", "-d", str(fresh), "-cp", classpath, *map(str, sources)], JAVAC_SECONDS)
            shutil.rmtree(fresh / "sources")
            fresh.rename(classes)
    return os.pathsep.join((str(classes), jars))


def plugin_settings(storage: Mapping[str, object], **settings: object) -> dict[str, object]:
    """Settings of a broker that uses the plugin.

    Args:
        storage: of the storage backend, with its class as ``backend.class``.
        settings: of the plugin, with ``_`` for each dot.
    """
    named = {name.replace("_", "."): value for name, value in settings.items()}
    stored = {f"storage.{name}": value for name, value in storage.items()}
    plugin = {"chunk.size": 2000, **named, **stored}
    return {
        "remote.log.storage.manager.class.name": CLASS_NAME,
        **{f"rsm.config.{name}": value for name, value in plugin.items()},
    }


def in_directory(root: Path) -> dict[str, object]:
    """The storage backend that keeps objects in a directory."""
    root.mkdir(parents=True, exist_ok=True)
    return {"backend.class": f"{STORAGE}.filesystem.FileSystemStorage", "root": root}


def in_bucket(bucket: str, endpoint: str) -> dict[str, object]:
    """The storage backend that keeps objects in a bucket of the S3 server of the tests."""
    return {
        "backend.class": f"{STORAGE}.s3.S3Storage",
        "s3.bucket.name": bucket,
        "s3.endpoint.url": endpoint,
        "s3.region": "us-east-1",
        "s3.path.style.access.enabled": "true",
        "aws.access.key.id": "test",
        "aws.secret.access.key": "testtesttest",
    }


def _jars() -> str:
    pom = JAVA_SOURCES / "aiven.xml"
    cached = CACHE / f"aiven-{_digest(pom.read_bytes())}.txt"
    with _one_at_a_time("aiven-jars"):
        if not cached.is_file() or not all(Path(jar).is_file() for jar in cached.read_text().strip().split(os.pathsep)):
            fresh = cached.with_suffix(".tmp")
            _run([*MAVEN, "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={fresh}"], MAVEN_SECONDS)
            check_jars(map(Path, fresh.read_text().strip().split(os.pathsep)))
            fresh.replace(cached)
    return cached.read_text().strip()


def _sources(version: str, place: Path) -> list[Path]:
    """The sources of the plugin without what writes Iceberg tables, as a release of Kafka needs them."""
    place.mkdir()
    repository = os.environ.get("AIVEN_PLUGIN_SOURCE")
    if repository is None:
        repository = str(place / "clone")
        _run(["git", "init", "--quiet", repository], GIT_SECONDS)
        _run(["git", "-C", repository, "fetch", "--quiet", "--depth=1", REPOSITORY, COMMIT], GIT_SECONDS)
    names = [f"{each}/src/main" for each in MODULES]
    archive = subprocess.run(
        ["git", "-C", repository, "archive", COMMIT, *names], capture_output=True, timeout=GIT_SECONDS, check=False
    )
    if archive.returncode:
        raise KafkaUnavailableError(f"the plugin's sources cannot be had: {archive.stderr.decode(errors='replace')}")
    tree = place / "tree"
    tree.mkdir()
    subprocess.run(["tar", "x", "-C", str(tree)], input=archive.stdout, timeout=GIT_SECONDS, check=True)
    own = [each for each in tree.rglob("*.java") if "iceberg" not in each.parts and not (STAND_INS / each.name).exists()]
    moved = tuple(map(int, version.split(".")[:2])) >= (4, 3)
    for each in own if moved else ():
        text = each.read_text()
        for name in ("FileRecords", "RecordBatch", "CompressionType"):
            text = text.replace(f"org.apache.kafka.common.record.{name};", f"org.apache.kafka.common.record.internal.{name};")
        each.write_text(text)
    return [*own, *STAND_INS.glob("*.java")]
