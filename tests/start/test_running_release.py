"""The release of a broker that runs: from the process that holds the log directory, and from no other one."""

import os
from pathlib import Path

import pytest
from command import in_json
from other_process import live_broker
from stopped_broker import made

from snaprebuild.broker.broker_facts import read_broker_facts
from snaprebuild.broker.releases import ALL_RELEASES
from snaprebuild.storage.local.broker_lock import HOLDER_NOT_VISIBLE, BrokerProcess, broker_process
from snaprebuild.storage.log_dir import read_log_dir
from snaprebuild.storage.store_path import path_of

LIBS = "/opt/kafka/libs"
Release = tuple[int, int, int]


def process_tree(proc: Path, process_id: int, *arguments: str) -> Path:
    """A process as the kernel describes it."""
    place = proc / str(process_id)
    (place / "fd").mkdir(parents=True)
    (place / "cmdline").write_bytes(b"\0".join(each.encode() for each in arguments) + b"\0")
    return place


@pytest.mark.parametrize(
    ("class_path", "releases"),
    [
        (f"{LIBS}/kafka_2.13-4.3.1.jar:{LIBS}/kafka-clients-4.3.1.jar", ((4, 3, 1),)),
        (f"{LIBS}/kafka-clients-3.6.0.jar:{LIBS}/kafka_2.12-3.9.2.jar", ((3, 9, 2),)),
        (f"{LIBS}/kafka_2.13-3.9.2.jar:{LIBS}/kafka_2.13-4.0.0.jar", ((3, 9, 2), (4, 0, 0))),
        ("/opt/kafka_2.13-3.9.2/libs/connect-api-3.9.2.jar", ()),
        (f"{LIBS}/*", ()),
    ],
)
def test_the_holder_of_the_lock(tmp_path: Path, class_path: str, releases: tuple[Release, ...]) -> None:
    log_dir = made(tmp_path).parent
    (log_dir / ".lock").touch()
    proc = tmp_path / "proc"
    with live_broker(log_dir) as process_id:
        process_tree(proc, process_id, "java", "-cp", class_path, "kafka.Kafka")
        process_tree(proc, process_id + 1, "java", "-cp", f"{LIBS}/kafka_2.13-2.8.0.jar", "kafka.Kafka")
        assert broker_process(log_dir, process_id, proc) == BrokerProcess(process_id, releases)


def test_a_wildcard_of_a_class_path_is_known_by_open_files(tmp_path: Path) -> None:
    log_dir = made(tmp_path).parent
    (log_dir / ".lock").touch()
    with live_broker(log_dir) as process_id:
        place = process_tree(tmp_path / "proc", process_id, "java", "-cp", f"{LIBS}/*", "kafka.Kafka")
        (place / "fd" / "7").symlink_to(f"{LIBS}/kafka_2.13-3.8.1.jar")
        assert broker_process(log_dir, process_id, tmp_path / "proc").releases == ((3, 8, 1),)


def test_a_process_of_another_log_directory_is_never_followed(tmp_path: Path) -> None:
    """The holder has ended, and its number is that of another broker by now."""
    own, other = (made(tmp_path / name).parent for name in ("own", "other"))
    for each in (own, other):
        (each / ".lock").touch()
    with live_broker(other) as process_id:
        process_tree(tmp_path / "proc", process_id, "java", "-cp", f"{LIBS}/kafka_2.13-2.8.0.jar")
        assert broker_process(own, process_id, tmp_path / "proc") == BrokerProcess(process_id)
        assert broker_process(other, process_id, tmp_path / "proc").releases


def test_what_cannot_be_read_is_not_known(tmp_path: Path) -> None:
    log_dir = made(tmp_path).parent
    (log_dir / ".lock").touch()
    with live_broker(log_dir) as process_id:
        assert broker_process(log_dir, process_id, tmp_path / "nothing") == BrokerProcess(process_id)
        place = tmp_path / "proc" / str(process_id)
        (place / "cmdline").mkdir(parents=True)
        (place / "fd").write_bytes(b"")
        assert broker_process(log_dir, process_id, tmp_path / "proc") == BrokerProcess(process_id)
        assert broker_process(log_dir, HOLDER_NOT_VISIBLE, tmp_path / "proc") == BrokerProcess(HOLDER_NOT_VISIBLE)
        run = in_json("scan", log_dir)
        assert run.exit_code == 0
        assert (run.document["log_dirs"][0]["held_by"], run.document["log_dirs"][0]["kafka_release"]) == (process_id, None)


@pytest.mark.parametrize(
    ("releases", "given", "first", "last", "evidence"),
    [
        (((3, 9, 2),), None, (3, 9, 2), (3, 9, 2), "Kafka 3.9.2 by the jars of process 7"),
        (((3, 9, 2), (4, 0, 0)), None, (3, 9, 2), (4, 0, 0), "Kafka 3.9.2 to 4.0.0 by the jars of process 7"),
        (((3, 9, 2),), (4, 3, 1), (4, 3, 1), (4, 3, 1), "Kafka 4.3.1 by --kafka-release"),
        # A broker of 2.7 has other rules, and numbers of other vendors are no releases of Kafka.
        (((2, 7, 2),), None, (3, 7, 0), ALL_RELEASES.last, "Kafka 3.7.0 to 4.4 by directory.id in meta.properties"),
        (((7, 6, 0),), None, (3, 7, 0), ALL_RELEASES.last, "Kafka 3.7.0 to 4.4 by directory.id in meta.properties"),
    ],
)
def test_the_order_of_the_evidence(
    tmp_path: Path, releases: tuple[Release, ...], given: Release | None, first: Release, last: Release, evidence: str
) -> None:
    state = read_log_dir(path_of(str(made(tmp_path).parent)))
    processes = [BrokerProcess(7, releases), BrokerProcess(HOLDER_NOT_VISIBLE)]
    found = read_broker_facts([state], None, given, None, processes).releases
    assert (found.first, found.last, found.evidence) == (first, last, evidence)


def test_every_lower_bound_is_named(tmp_path: Path) -> None:
    state = read_log_dir(path_of(str(made(tmp_path).parent)))
    found = read_broker_facts([state], None, None, (4, 1, 0)).releases
    assert found.evidence == "Kafka 4.1.0 to 4.4 by directory.id in meta.properties, metadata.version"


def test_the_evidence_of_a_fate_names_the_release(tmp_path: Path) -> None:
    directory = made(tmp_path)
    (directory.parent / "backup").mkdir()
    (fate,) = in_json("scan", directory.parent).document["fates"]
    assert fate["evidence"].endswith("; Kafka 3.7.0 to 4.4 by directory.id in meta.properties")
    (fate,) = in_json("scan", directory.parent, "--kafka-release", "4.3.1").document["fates"]
    assert fate["evidence"].endswith("; Kafka 4.3.1 by --kafka-release")
    assert os.path.isdir(fate["path"])
