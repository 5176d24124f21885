"""The example of a plugin that lets no segment go up with a wrong snapshot, around Kafka's own LocalTieredStorage."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_classpath import kafka_classpath
from log_dirs import EMPTY_SNAPSHOT, copy_of, entries_in, flip, snapshot_name, truth
from manifests import REPOSITORY

from snaprebuild.snapshots.scan.upload_attempts import copy_outcomes

pytestmark = pytest.mark.kafka

EXAMPLES = REPOSITORY / "docs" / "examples"
WRAPPER, LOCAL = "SnapshotCheckingStorageManager", "org.apache.kafka.server.log.remote.storage.LocalTieredStorage"
SECONDS = 120
BASE, NEXT = 1662, 2181


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Kafka's, with the example and what calls it."""
    classes, kafka = tmp_path_factory.mktemp("classes"), kafka_classpath()
    sources = [EXAMPLES / f"{WRAPPER}.java", REPOSITORY / "tests" / "broker" / "java" / "CopySegment.java"]
    command = ["javac", "-Xlint:all", "-d", classes, "-cp", kafka, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning: [" not in done.stderr.replace("warning: [path]", ""), done.stderr
    return f"{classes}{os.pathsep}{kafka}"


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    """A partition, of whose segment at 1662 the broker wrote an empty snapshot."""
    directory = copy_of("kafka27-mixed", tmp_path) / "mixed-0"
    (directory / snapshot_name(NEXT)).write_bytes(EMPTY_SNAPSHOT)
    return directory


def copied(classpath: str, directory: Path, plugin: str = WRAPPER, epoch: str = "0", **settings: object) -> str:
    """Asks remote storage for the snapshot of a copied segment; returns its answer, or the refusal."""
    store = directory.parent.parent / "remote"
    store.mkdir(exist_ok=True)
    about = {
        "dir": store,
        "checked.class.name": LOCAL,
        "checked.command": f"{sys.executable} {EXAMPLES / 'right-snapshot'}",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    command = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classpath, "CopySegment", plugin, directory, BASE, NEXT, epoch]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(
        [*map(str, command), *(f"{name}={value}" for name, value in about.items())],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_an_empty_snapshot_is_replaced_on_its_way(classpath: str, mixed: Path) -> None:
    assert copied(classpath, mixed, LOCAL) == EMPTY_SNAPSHOT.hex(), "what happens without the wrapper"
    before = (mixed / snapshot_name(NEXT)).stat()
    assert entries_in(bytes.fromhex(copied(classpath, mixed))) == truth("kafka27-mixed", "mixed-0")[NEXT]
    assert (mixed / snapshot_name(NEXT)).stat().st_mtime_ns == before.st_mtime_ns
    assert (mixed / snapshot_name(NEXT)).read_bytes() == EMPTY_SNAPSHOT


def test_a_right_snapshot_goes_up_as_it_is(classpath: str, mixed: Path) -> None:
    right = bytes.fromhex(copied(classpath, mixed))
    # The same entries in another order: these very bytes are right, too.
    turned = turned_around(right)
    assert turned != right
    (mixed / snapshot_name(NEXT)).write_bytes(turned)
    assert bytes.fromhex(copied(classpath, mixed)) == turned


def turned_around(data: bytes) -> bytes:
    import struct

    import crc32c

    rows = [data[at : at + 46] for at in range(10, len(data), 46)]
    checked = data[6:10] + b"".join(reversed(rows))
    return struct.pack(">hI", 1, crc32c.crc32c(checked)) + checked


def test_where_nothing_can_be_proven_nothing_goes_up(classpath: str, mixed: Path) -> None:
    flip(mixed / f"{1151:020d}.log", 61 + 20)
    assert copied(classpath, mixed).startswith("refused: no snapshot at 2181 can be proven: ")
    remote = mixed.parent.parent / "remote"
    assert not list(remote.rglob("*.log"))


def test_a_program_that_does_not_answer(classpath: str, mixed: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 100\n")
    slow.chmod(0o755)
    said = copied(classpath, mixed, checked_command=slow, checked_timeout_seconds=1)
    assert said == "refused: no answer about the snapshot at 2181 within 1 s"
    assert copied(classpath, mixed, checked_command=tmp_path / "nowhere").startswith("refused: the snapshot of ")


def test_what_a_broker_says_of_a_segment_without_leader_epochs(classpath: str, mixed: Path) -> None:
    """The exception that the preflight foretells, from the class that throws it."""
    (outcome,) = copy_outcomes(has_snapshot=True, has_leader_epochs=False, is_too_large=False)
    said = copied(classpath, mixed, LOCAL, epoch="")
    assert said.startswith(f"{outcome.exception}: ")
    assert outcome.message is not None
    assert outcome.message in said
