"""Paths that the shell or a broker was to expand are explained; any other absent path only does not exist."""

import os
from pathlib import Path

import pytest

from formats.broker.broker_files import read_properties
from snaprebuild.errors import UsageError
from snaprebuild.findings import Severity
from snaprebuild.snapshots.source.broker_properties import log_dirs_of, log_dirs_online, metadata_dir_of, read_server_properties
from snaprebuild.snapshots.source.source import open_source
from snaprebuild.storage.local.log_dir_guard import log_dir_above
from snaprebuild.typed_paths import absent_text, unexpanded_part


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("~/logs", "~"),
        ("~kafka/logs", "~kafka"),
        ("'/logs'", "'"),
        ('"/logs', '"'),
        ("/logs'", "'"),
        ("${env:LOGS}/a", "${env:LOGS}"),
        ("/data/$NAME/a", "$NAME"),
        ("/data/~backup", None),
        ("/data/a$1", None),
        ("/data/logs", None),
        ("", None),
    ],
)
def test_the_part_that_is_to_be_expanded(path: str, part: str | None) -> None:
    assert unexpanded_part(path) == part
    assert (absent_text(path) == "does not exist") == (part is None)


def test_the_path_to_write_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/kafka")
    assert absent_text("~/logs").endswith(": write /home/kafka/logs")
    assert absent_text('"/a b"').endswith(": write /a b")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("~/logs", "Kafka does not expand ~"),
        ("'/logs'", "Kafka takes the quotes as a part of the name"),
        ("/nowhere,${file:/a.properties:dirs}", "config provider 'file'"),
        ("$LOGS", "Kafka does not expand $LOGS"),
    ],
)
def test_a_value_of_a_broker(value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, read in (("log.dirs", log_dirs_of), ("metadata.log.dir", metadata_dir_of)):
        properties = read_properties(f"{name}={value}\n".encode(), file="p")
        with pytest.raises(UsageError, match="Write the path into a copy of the file") as caught:
            read(properties)
        assert said in str(caught.value)
    os.makedirs(tmp_path / "~" / "logs")
    assert log_dirs_of(read_properties(b"log.dirs=~/logs\n", file="p")) == ["~/logs"], "a broker that began there has it"


def test_the_other_log_dirs_stay_protected(tmp_path: Path) -> None:
    """A value that cannot be expanded does not open the other directories of the broker to documents."""
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path / 'own'},${{env:LOGS}}/a\n")
    read_server_properties(str(properties))
    assert log_dir_above(str(tmp_path / "own" / "scan.json")) is not None


def test_relative_log_dirs_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are found in the current directory, which need not be that of the broker: the note names both."""
    (tmp_path / "logs" / "t-0").mkdir(parents=True)
    (tmp_path / "logs" / "t-0" / f"{0:020d}.log").touch()
    properties = tmp_path / "server.properties"
    properties.write_text("log.dirs=logs\n")
    monkeypatch.chdir(tmp_path)
    (note,) = (each for each in open_source([], str(properties)).findings if each.code == "relative-log-dirs")
    assert (note.severity, note.path) == (Severity.NOTE, str(properties))
    assert f"(logs): they were taken from the current directory, {tmp_path};" in note.message
    monkeypatch.chdir("/")
    with pytest.raises(UsageError, match="they were taken from the current directory"):
        log_dirs_online(read_properties(b"log.dirs=logs\n", file="p"), "p")
