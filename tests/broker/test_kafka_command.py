"""``scripts/kafka/local_broker.py``: an old broker is started, written to and stopped by one run of the script each."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from log_dirs import snapshots_in
from manifests import REPOSITORY


def kafka(*arguments: object) -> tuple[int, str, str]:
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable}
    command = [REPOSITORY / "scripts" / "kafka" / "local_broker.py", *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def is_alive(pid: int) -> bool:
    """Not as a process that has ended and that no one has asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.broker
def test_the_life_of_an_old_broker(tmp_path: Path) -> None:
    directory = tmp_path / "broker"
    assert kafka("status", directory)[0] == 2
    pids: list[int] = []
    try:
        code, reported, error = kafka("start", "2.7.2", directory)
        assert code == 0, error
        pids = [int((directory / file).read_text().split()[0]) for file in ("broker.pid", "zookeeper/zookeeper.pid")]
        assert re.match(rf"Kafka 2\.7\.2 serves at 127\.0\.0\.1:\d+; process {pids[0]}; ", reported)
        assert all(map(is_alive, pids))
        again = kafka("start", "2.7.2", directory)
        assert (again[0], "a broker runs already" in again[2]) == (2, True)

        ends = []
        for kind in ("plain", "idempotent", "committed", "aborted", "hanging"):
            settings = ("--set", "segment.bytes=20000") if kind == "plain" else ()
            code, reported, error = kafka("produce", directory, "payments", kind, 50, *settings)
            assert code == 0, error
            found = re.fullmatch(r"payments-0: log end (\d+), last stable offset (\d+)\n", reported)
            assert found is not None, reported
            ends.append((int(found[1]), int(found[2])))
        # Two transactions of 25 records, each with a marker at its end; and one that no one ends.
        assert ends == [(50, 50), (100, 100), (152, 152), (204, 204), (254, 204)]
        code, reported, _ = kafka("status", directory)
        assert (code, f"Kafka 2.7.2 runs as process {pids[0]}" in reported) == (0, True)
    finally:
        code, _, error = kafka("stop", directory)
    assert (code, error) == (0, "")
    assert not any(map(is_alive, pids))
    code, reported, _ = kafka("status", directory)
    assert code == 1
    segments = sorted(int(path.stem) for path in (directory / "kafka-logs" / "payments-0").glob("*.log"))
    assert len(segments) >= 4
    assert re.search(rf"payments-0: {len(segments)} segments, \d+ bytes, 3 snapshots, 0 uploaded", reported)
    # What brokers before 2.8 leave: the last two segments and the log end.
    left = snapshots_in(directory / "kafka-logs" / "payments-0")
    assert sorted(left) == [*segments[-2:], 254]
    assert sorted(entry.current_txn_first_offset for entry in left[254]) == [-1, -1, -1, 204]
