"""The entries of ``log.dirs`` that keep a broker from its start. Expected values: Kafka's own ``KafkaRaftServer.initializeLogDirs``
(``tests/broker/start_fates.toml``)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import snaprebuild, snaprebuild_process
from sentences import NO_START, RECORDS_REMOVED
from stopped_broker import KRAFT, made

RELEASE = ("--kafka-release", "4.3.1")
OTHER_ID = KRAFT.replace("directory.id=1", "directory.id=2")


def _formatted(second: Path) -> None:
    second.mkdir()
    (second / "meta.properties").write_text(OTHER_ID)


def _missing(second: Path) -> None:
    assert not second.exists()


def _empty(second: Path) -> None:
    second.mkdir()


def _file(second: Path) -> None:
    second.write_text("")


def _same_id(second: Path) -> None:
    second.mkdir()
    (second / "meta.properties").write_text(KRAFT)


def _malformed(second: Path) -> None:
    second.mkdir()
    (second / "meta.properties").write_text("node.id=\\u00zz\n")


def _directory_as_meta_properties(second: Path) -> None:
    (second / "meta.properties").mkdir(parents=True)


def _metadata_log(second: Path) -> None:
    _formatted(second)
    (second / "__cluster_metadata-0").mkdir()


@pytest.mark.parametrize(
    ("change", "kraft", "line"),
    [
        (_formatted, True, None),
        (_missing, True, f"{NO_START}a log directory that does not exist"),
        (_empty, True, f"{NO_START}a log directory without meta.properties"),
        (_file, True, "d2 goes offline at the start: a log directory that is no directory."),
        (_malformed, True, "d2 goes offline at the start: malformed meta.properties."),
        (_directory_as_meta_properties, True, "d2 goes offline at the start: meta.properties is a directory."),
        (_same_id, True, f"{NO_START}one directory.id in two log directories"),
        (_metadata_log, True, f"{NO_START}a metadata log outside of metadata.log.dir"),
        (_empty, False, None),
        (_missing, False, None),
    ],
)
def test_a_second_log_directory(tmp_path: Path, change: Callable[[Path], None], line: str | None, *, kraft: bool) -> None:
    """With ZooKeeper a broker creates what is missing."""
    first = made(tmp_path, kraft=kraft).parent
    if not kraft:
        (first / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\n")
        shutil.copy(made(tmp_path / "other") / "partition.metadata", first / "orders-0")
    second = tmp_path / "d2"
    change(second)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={first},{second}\n" + ("process.roles=broker\nnode.id=1\n" if kraft else "broker.id=1\n"))
    text = snaprebuild("scan", "--server-properties", properties, *(RELEASE if kraft else ("--kafka-release", "3.9.2"))).text
    if line is None:
        assert "does not start" not in text
        assert "goes offline" not in text
    else:
        assert line in text


def test_the_metadata_log_where_the_configuration_has_it(tmp_path: Path) -> None:
    first = made(tmp_path).parent
    second = tmp_path / "d2"
    _metadata_log(second)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={first},{second}\nmetadata.log.dir={second}\nprocess.roles=broker\nnode.id=1\n")
    assert "does not start" not in snaprebuild("scan", "--server-properties", properties, *RELEASE).text


@pytest.mark.parametrize(
    ("release", "metadata_dir", "line"),
    [
        ("3.6.2", "logs", f"{NO_START}malformed meta.properties."),
        ("3.7.0", "logs", "d2 goes offline at the start: malformed meta.properties."),
        ("3.7.0", "d2", f"{NO_START}malformed meta.properties."),
        ("4.3.1", "d2", f"{NO_START}malformed meta.properties."),
    ],
)
def test_a_malformed_meta_properties_by_release_and_place(tmp_path: Path, release: str, metadata_dir: str, line: str) -> None:
    first, second = made(tmp_path).parent, tmp_path / "d2"
    (first / "meta.properties").write_text(KRAFT.partition("directory.id")[0])
    _malformed(second)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"log.dirs={first},{second}\nmetadata.log.dir={tmp_path / metadata_dir}\nprocess.roles=broker\nnode.id=1\n"
    )
    assert line in snaprebuild("scan", "--server-properties", properties, "--kafka-release", release).text


@pytest.mark.parametrize(
    ("contents", "release", "line"),
    [
        (None, "3.6.2", None),
        (None, "3.9.2", None),
        ("", "3.6.2", f"{NO_START}meta.properties is empty."),
        ("", "3.9.2", None),
        ("broker.id=x\n", "3.6.2", f"{NO_START}malformed meta.properties."),
        ("broker.id=x\n", "3.9.2", "d2 goes offline at the start: malformed meta.properties."),
        ("version=0\nbroker.id=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\n", "3.6.2", None),
    ],
)
def test_meta_properties_of_a_second_directory_with_zookeeper(
    tmp_path: Path, contents: str | None, release: str, line: str | None
) -> None:
    """Real brokers of both releases behaved so (``tests/broker/test_whole_brokers.py``)."""
    first, second = made(tmp_path, kraft=False).parent, tmp_path / "d2"
    (first / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\n")
    second.mkdir()
    if contents is not None:
        (second / "meta.properties").write_text(contents)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={first},{second}\nbroker.id=1\nzookeeper.connect=127.0.0.1:2181\n")
    text = snaprebuild("scan", "--server-properties", properties, "--kafka-release", release).text
    assert (line or "No snapshot missing") in text
    if line is None:
        assert "does not start" not in text
        assert "goes offline" not in text


def _only_the_copy(first: Path, second: Path) -> None:
    (first / "orders-0").rename(second / COPY)


def _with_the_partition(first: Path, second: Path) -> None:
    shutil.copytree(first / "orders-0", second / COPY)


def _empty_copy(first: Path, second: Path) -> None:
    _only_the_copy(first, second)
    for path in (second / COPY).iterdir():
        path.unlink()


def _other_disk_gone(first: Path, second: Path) -> None:
    _only_the_copy(first, second)
    shutil.rmtree(first)
    first.write_text("")


COPY = f"orders-0.{'0' * 32}-future"


@pytest.mark.parametrize(
    ("change", "is_cut"),
    [(_only_the_copy, True), (_with_the_partition, False), (_empty_copy, False), (_other_disk_gone, False)],
)
def test_a_future_copy_whose_partition_is_gone(tmp_path: Path, change: Callable[[Path, Path], None], *, is_cut: bool) -> None:
    """Real brokers create an empty log, and cut the copy to it (``tests/broker/test_whole_brokers.py``); not next to an offline disk."""
    first, second = made(tmp_path).parent, tmp_path / "d2"
    second.mkdir()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        shutil.copy(first / name, second)
    (second / "meta.properties").write_text(OTHER_ID)
    change(first, second)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={first},{second}\nmetadata.log.dir={second}\nprocess.roles=broker\nnode.id=1\n")
    run = snaprebuild("scan", "--server-properties", properties, *RELEASE)
    assert (f"{RECORDS_REMOVED}0 to 29 of orders-0, which were acknowledged." in run.text) == is_cut
    assert "lost-log-end" in run.stderr if is_cut else "lost-log-end" not in run.stderr
    held = snaprebuild_process(
        "before-start", "--server-properties", properties, *RELEASE, "--fail-closed", "--", "echo", "started"
    )
    if is_cut:
        assert (run.exit_code, held.exit_code) == (4, 3)
        assert "started" not in held.stdout
