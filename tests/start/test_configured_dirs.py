"""The entries of ``log.dirs`` that keep a broker from its start. Expected values: Kafka's own ``KafkaRaftServer.initializeLogDirs``
(``tests/broker/start_fates.toml``)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from in_process import snaprebuild
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


def _metadata_log(second: Path) -> None:
    _formatted(second)
    (second / "__cluster_metadata-0").mkdir()


@pytest.mark.parametrize(
    ("change", "kraft", "line"),
    [
        (_formatted, True, None),
        (_missing, True, "This broker does not start: a log directory that does not exist"),
        (_empty, True, "This broker does not start: a log directory without meta.properties"),
        (_file, True, "d2 goes offline at the start: a log directory that is no directory."),
        (_same_id, True, "This broker does not start: one directory.id in two log directories"),
        (_metadata_log, True, "This broker does not start: a metadata log outside of metadata.log.dir"),
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
