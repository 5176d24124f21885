"""``verify`` as a user runs it: its options, tables and exit codes. tests/snapshots/test_verify_verdicts.py has the verdicts."""

from __future__ import annotations

import re
from pathlib import Path

from in_process import in_json, snaprebuild
from log_dirs import (
    EMPTY_SNAPSHOT,
    batch,
    batch_positions,
    copy_of,
    flip,
    make_log_dir,
    snapshot_bytes,
    snapshot_name,
    truth,
    write_partition,
)


def test_selection() -> None:
    run = in_json("verify", "fixtures/kafka27-mixed", "--topic", "mixed", "--offsets", "7637:")
    assert run.verdicts("mixed-0") == {7637: "equal", 8231: "equal"}
    assert len(run.document["partitions"]) == 1


def test_checksums_are_not_computed_where_that_is_asked(tmp_path: Path) -> None:
    path = copy_of("kafka4-mixed", tmp_path) / "mixed-0" / f"{2430:020d}.log"
    flip(path, batch_positions(path)[3] + 61 + 2)
    assert in_json("verify", path.parent).exit_code == 4
    assert in_json("verify", path.parent, "--crc", "skip").exit_code == 0


def test_the_expiration_of_the_broker_counts(tmp_path: Path) -> None:
    logs, right = copy_of("kafka27-mixed", tmp_path), truth("kafka27-mixed", "mixed-0")[7045]
    gone = max((e for e in right if e.current_txn_first_offset < 0 and e.coordinator_epoch < 0), key=lambda e: e.timestamp)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(snapshot_bytes(right - {gone}))
    properties = tmp_path / "server.properties"
    for expiration, verdict in ((5000, "equal_after_expiry"), (5001, "missing_entries")):
        properties.write_text(f"log.dirs={logs}\nproducer.id.expiration.ms={expiration}\n")
        run = in_json("verify", "--server-properties", properties, "--as-of", gone.timestamp + 5000)
        assert run.document["expiration_ms"] == expiration
        assert run.verdicts("mixed-0")[7045] == verdict


def test_details_and_tables() -> None:
    run = snaprebuild("verify", "fixtures/kafka27-mixed", "-v")
    assert run.exit_code == 0
    assert re.search(r"mixed-0 +3 +12 +3 equal", run.stdout)
    assert re.search(r"mixed-0 +8231 +equal +35 +35 ", run.stdout)
    assert not [line for line in run.stderr.splitlines() if not line.startswith("I ")], "decisions alone"


def test_what_is_not_listed_is_counted(tmp_path: Path) -> None:
    """1,500 producers are not in the file, of which 1,000 are listed in JSON and 10 in the table."""
    logs = make_log_dir(tmp_path / "logs")
    data = b"".join(batch(producer, producer_id=producer) for producer in range(1500))
    write_partition(logs / "t-0", {0: data})
    (logs / "t-0" / snapshot_name(1500)).write_bytes(EMPTY_SNAPSHOT)
    run = in_json("verify", logs, "--as-of", "1000")
    (comparison,) = [each["comparison"] for each in run.partition("t-0")["snapshots"]]
    assert (comparison["difference_count"], comparison["certain_count"], len(comparison["differences"])) == (1500, 1500, 1000)
    assert (run.exit_code, run.codes, run.document["differences_not_listed"]) == (1, {"wrong-snapshot": 1}, 500)
    table = snaprebuild("verify", logs, "--as-of", "1000").text
    assert "a retry of sequence 0 or older is accepted as new (duplicate)" in table
    assert "and 1490 more (--output json lists 990 of them)" in table
    assert "500 entries that differ are counted and not listed" in table
