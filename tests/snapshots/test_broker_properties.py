"""What ``server.properties`` may say of directories, which anybody may have written."""

from __future__ import annotations

import pytest
from memory_peak import measured

from formats.broker.broker_files import read_properties
from snaprebuild.cluster.quorum.advise import metadata_directory_of
from snaprebuild.errors import UsageError
from snaprebuild.snapshots.source.broker_properties import LOG_DIRS_MAX, log_dirs_of, log_dirs_online, metadata_dir_of


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"log.dirs=,", "log.dirs: expected at least one directory, found none"),
        (b"log.dirs=/a\\u0000b", "log.dirs: expected a directory, found '/a\\x00b'"),
        (b"log.dirs=/a,\\ud800", "log.dirs: expected a directory, found '\\ud800'"),
        (b"log.dirs=" + b",".join([b"/a"] * (LOG_DIRS_MAX + 1)), "log.dirs: expected at most 1000 directories, found 1001"),
        (b"log.dirs=" + b"/a," * 600_000, "log.dirs: expected at most 1000 directories, found 600001"),
    ],
    ids=["none", "null", "surrogate", "one-more", "many"],
)
def test_log_dirs_that_are_none(text: bytes, said: str) -> None:
    properties = read_properties(text)
    for function in (log_dirs_of, lambda each: log_dirs_online(each, "x"), metadata_directory_of):
        with measured() as peak, pytest.raises(UsageError) as told:
            function(properties)
        assert str(told.value) == f"server.properties: {said}"
        assert peak.bytes <= 1 << 20


def test_as_many_log_dirs_as_may_be() -> None:
    paths = [f"/absent/{number}" for number in range(LOG_DIRS_MAX)]
    assert log_dirs_of(read_properties(f"log.dirs={' , '.join(paths)}".encode())) == paths


def test_a_metadata_log_dir_that_is_none() -> None:
    for text in (b"metadata.log.dir=/a\\u0000b", b"metadata.log.dir=\\ud800"):
        properties = read_properties(text)
        for function in (metadata_dir_of, metadata_directory_of):
            with pytest.raises(UsageError, match=r"metadata\.log\.dir: expected a directory, found"):
                function(properties)
