"""``transactions`` as a user runs it: the open ones are those that Kafka's classes left open, the closed ones those of the fold."""

import re
from collections import Counter
from pathlib import Path

import pytest
from command import in_json, snaprebuild
from kafka_file_writers import write_transaction_state
from log_dirs import TRANSACTIONAL, batch, copy_of, flip, record, tree, write_partition
from manifests import FIXTURES, PartitionFixture, partition_fixtures
from reference_producer_state import Marker, ProducerState, producer_batches
from sentences import FIND_HANGING, MORE_ROWS

from formats.log.batch_headers import BytesSegment, HeaderReader


def fixtures_of(name: str) -> list[PartitionFixture]:
    return [each for each in partition_fixtures() if each.fixture == name]


def fold(fixture: PartitionFixture) -> Counter[str]:
    """Counts the transactions that the markers closed, batch by batch."""
    state, counts = ProducerState(), Counter[str]()
    for segment in fixture.segments:
        for block in HeaderReader(BytesSegment(segment.path.read_bytes())):
            for each in producer_batches(block):
                counts["markers"] += isinstance(each, Marker)
                for completed in state.append([each]):
                    counts["aborted" if completed.is_aborted else "committed"] += 1
    return counts


@pytest.mark.parametrize("fixture", ["kafka27-mixed", "txn-state4"])
def test_what_is_open_is_what_kafka_left_open(fixture: str) -> None:
    before = tree(FIXTURES / fixture)
    run = in_json("inspect transactions", f"fixtures/{fixture}", "--as-of", "2200-01-01")
    has_open = False
    for each in fixtures_of(fixture):
        found = run.partition(each.partition)
        last = each.segments[-1]
        is_open = {entry.current_txn_first_offset: entry for entry in last.entries if entry.current_txn_first_offset >= 0}
        has_open |= bool(is_open)
        assert [one["first_offset"] for one in found["open"]] == sorted(is_open)
        for one in found["open"]:
            entry = is_open[one["first_offset"]]
            names = ("producer_id", "epoch", "coordinator_epoch")
            assert [one[name] for name in names] == [getattr(entry, name) for name in names]
            assert one["last_ms"] == entry.timestamp
            assert one["is_late"]
        assert found["log_end_offset"] == (last.snapshot_offset if last.next_offset > 0 else None)
        assert found["last_stable_offset"] == (min(is_open) if is_open else found["log_end_offset"])
        counts = fold(each)
        reported = found["totals"]
        assert (reported["committed"], reported["aborted"]) == (counts["committed"], counts["aborted"])
        assert sum(reported[name] for name in ("committed", "aborted", "empty", "unknown")) == counts["markers"]
    assert run.exit_code == int(has_open), run.stderr
    assert tree(FIXTURES / fixture) == before


def test_the_table_adds_up_to_the_headline() -> None:
    """Bytes that cannot be uploaded are whole rolled segments; the bytes of a transaction begin at its first batch."""
    run = snaprebuild("inspect transactions", "fixtures/kafka27-killed", "--as-of", "2026-11-22")
    headline = re.search(r"; ([0-9.]+) KiB in rolled segments cannot be uploaded", run.text)
    assert headline is not None
    lines = run.stdout.splitlines()
    (header,) = [line for line in lines if line.lstrip().startswith("partition") and "cannot upload" in line]
    begin = lines.index(header) + 2
    rows = [line.split() for line in lines[begin : lines.index("", begin)]]
    sizes = [float(row[-2]) for row in rows if row[-1] == "KiB" and row[-2] != "-"]
    assert sum(sizes) == pytest.approx(float(headline[1]))
    listed = in_json("inspect transactions", "fixtures/kafka27-killed", "--as-of", "2026-11-22").document["partitions"]
    earlier = [one for each in listed for one in each["open"] if one["last_ms"] < one["since_ms"]]
    assert len(earlier) == 2
    assert "2 transactions have a last batch with an earlier time than the first." in run.text


MIXED = "fixtures/kafka27-mixed/logs/mixed-0"
LAST_MS = 1_795_259_503_210
"""When producer 33 wrote its last batch: its transaction is open from 6913."""


@pytest.mark.parametrize(
    ("as_of_ms", "arguments", "late"),
    [
        (LAST_MS + 1_200_001, (), 1),
        (LAST_MS + 360_000, ("--assume", "max_timeout_ms=60000"), 0),
        (LAST_MS + 360_001, ("--assume", "max_timeout_ms=60000"), 1),
        (LAST_MS + 6, ("--assume", "late_after_ms=5"), 1),
    ],
)
def test_when_a_transaction_is_late(as_of_ms: int, arguments: tuple[object, ...], late: int) -> None:
    run = in_json("inspect transactions", MIXED, "--as-of", as_of_ms, *arguments)
    assert run.exit_code == late
    assert run.partition("mixed-0")["totals"]["late"] == late
    assert run.document["totals"]["partitions_with_late"] == late
    assert [each["hang_reason"] for each in run.partition("mixed-0")["open"]] == ["unknown" if late else None, None]
    assert [each["abort_commands"] for each in run.partition("mixed-0")["open"]] == [None, None], "no coordinator ended them"


def test_the_limit_of_the_brokers_configuration(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\ntransaction.max.timeout.ms=60000\n")
    run = in_json("inspect transactions", "--server-properties", properties, "--as-of", LAST_MS)
    assert (run.exit_code, run.document["late_after_ms"]) == (0, 360_000)
    assumed = in_json("inspect transactions", "--server-properties", properties, "--assume", "late_after_ms=7")
    assert assumed.document["late_after_ms"] == 7
    properties.write_text(f"log.dirs={logs}\n")
    assert (
        in_json("inspect transactions", "--server-properties", properties, "--as-of", LAST_MS).document["late_after_ms"]
        == 1_200_000
    )
    properties.write_text(f"log.dirs={logs}\ntransaction.max.timeout.ms=soon\n")
    run = snaprebuild("inspect", "transactions", "--server-properties", properties)
    assert run.exit_code == 2
    assert "transaction.max.timeout.ms: expected a number from 1" in run.stderr


def test_without_the_coordinators_records_no_abort_is_printed() -> None:
    """The transactions may still be alive; the coordinators are asked."""
    run = snaprebuild("inspect", "transactions", MIXED, "--as-of", "2200-01-01")
    command = "kafka-transactions.sh --bootstrap-server HOST:PORT find-hanging --topic mixed --partition 0"
    assert run.stdout.splitlines().count(f"  {command}") == 1, "once for both"
    assert " abort --topic" not in run.stdout
    assert "2 transactions: unknown. No record of a coordinator" in run.text
    assert "the partitions of __transaction_state (--transaction-state DIR)" in run.text
    assert "2 open transactions have no batch for more than 1200 s, the oldest from offset 6913" not in run.stderr, "stdout says so"
    assert "kafka-transactions" not in snaprebuild("inspect", "transactions", MIXED, "--as-of", LAST_MS).stdout


@pytest.mark.parametrize(("logs", "states"), [("kafka27-mixed", "txn-state"), ("kafka4-mixed", "txn-state4")])
def test_transactions_that_their_coordinator_still_has(logs: str, states: str) -> None:
    """The producers of the fixtures died in their transactions, and the brokers were stopped before the timeout of 900 s."""
    run = in_json(
        "inspect transactions", FIXTURES / logs, "--transaction-state", FIXTURES / states / "logs", "--as-of", "2200-01-01"
    )
    found = [each for partition in run.document["partitions"] for each in partition["open"]]
    assert {each["transactional_id"] for each in found} == {"hang-1", "hang-2"}
    assert {(each["hang_reason"], each["abort_commands"]) for each in found} == {("over_timeout", None)}
    young = in_json(
        "inspect transactions",
        *(FIXTURES / logs, "--transaction-state", FIXTURES / states / "logs"),
        *("--as-of", LAST_MS + 10_000, "--assume", "late_after_ms=1"),
    )
    found = [each for partition in young.document["partitions"] for each in partition["open"]]
    assert {(each["hang_reason"], each["abort_commands"]) for each in found} == {("within_timeout", None)}


def test_a_cluster_whose_coordinators_partition_has_no_leader() -> None:
    run = in_json("inspect transactions", FIXTURES / "kraft-cluster3" / "node2", "--as-of", "2030-01-01")
    (found,) = run.partition("orders-0")["open"]
    assert (found["transactional_id"], found["hang_reason"], found["abort_commands"]) == ("hang", "over_timeout", None)
    assert "__transaction_state-0 has no leader" in [each["what"] for each in found["facts"]]


def test_a_transaction_that_may_have_begun_earlier_is_marked(tmp_path: Path) -> None:
    data = batch(100, producer_id=7, epoch=1, sequence=5, attributes=TRANSACTIONAL)
    directory = write_partition(tmp_path / "t-0", {100: data})
    run = in_json("inspect transactions", directory, "--as-of", 0)
    assert run.partition("t-0")["open"][0]["may_have_begun_before"]
    assert run.codes == {"transactions-before-log-start": 1}
    assert "may have begun below the first segment" in snaprebuild("inspect", "transactions", directory, "--as-of", 0).text


def test_many_late_ones_end_in_a_count(tmp_path: Path) -> None:
    data = b"".join(batch(at, producer_id=at, attributes=TRANSACTIONAL) for at in range(130))
    run = snaprebuild("inspect", "transactions", write_partition(tmp_path / "t-0", {0: data}))
    assert "100 transactions: unknown." in run.text
    assert "Why: 100 unknown, 30 not listed." in run.text
    assert f"and 81 {MORE_ROWS}" in run.stdout, "rows of the table, of which one counts what is not listed"


# ------------------------------------------------------------------------------------------------------- two-phase commit (KIP-939)

NEVER_MS = 2**31 - 1


def state_log(log_dir: Path, *states: tuple[int, int, int]) -> Path:
    """A ``__transaction_state-0`` of ordinary records: producer id, epoch and timeout of each."""
    data = b""
    for offset, (producer_id, epoch, timeout_ms) in enumerate(states):
        fields = {"producerId": producer_id, "producerEpoch": epoch, "transactionTimeoutMs": timeout_ms, "transactionStatus": 1}
        key, value = write_transaction_state(f"id-{producer_id}", fields)
        data += batch(offset, records=[record(value, key=key)])
    return write_partition(log_dir / "__transaction_state-0", {0: data})


def open_transactions(log_dir: Path, *producer_ids: int) -> Path:
    data = b"".join(batch(at, producer_id=each, attributes=TRANSACTIONAL) for at, each in enumerate(producer_ids))
    return write_partition(log_dir / "t-0", {0: data})


def test_no_abort_is_printed_for_a_transaction_under_two_phase_commit(tmp_path: Path) -> None:
    """Producer 7 is under it, 8 is not, 9 is in no record that was given."""
    logs, states = open_transactions(tmp_path / "logs", 7, 8, 9), state_log(tmp_path / "other", (7, 0, NEVER_MS), (8, 0, 60_000))
    run = in_json("inspect transactions", logs, "--transaction-state", states)
    found = run.partition("t-0")["open"]
    assert [each["two_phase"] for each in found] == ["yes", "no", "unknown"]
    assert [each["is_late"] for each in found] == [False, True, True]
    assert [each["transactional_id"] for each in found] == ["id-7", "id-8", None]
    assert [each["timeout_ms"] for each in found] == [NEVER_MS, 60_000, None]
    assert [each["abort_commands"] for each in found] == [None, None, None], "nothing shows that this replica leads"
    assert (run.exit_code, run.codes) == (1, {"two-phase-transaction": 1, "late-transaction": 1})
    assert run.partition("t-0")["totals"]["late"] == 2
    table = snaprebuild("inspect", "transactions", logs, "--transaction-state", tmp_path / "other")
    assert "--start-offset" not in table.stdout
    assert "--producer-id 7" not in table.stdout
    assert FIND_HANGING in table.stdout
    assert "abort none that is under two-phase commit" in table.text, "producer 9 is not known"
    words = " ".join(table.stdout.split())
    assert words.startswith("2 transactions are late in 1 partition. All transactions: 3 open, 2 late.")
    assert "timeout 60000 ms" in words


def test_a_prepared_transaction_that_its_coordinator_kept_for_a_later_epoch(tmp_path: Path) -> None:
    """``InitProducerId`` with ``keepPreparedTxn`` raises the epoch; the data was written in the one before."""
    logs, states = open_transactions(tmp_path / "logs", 7), state_log(tmp_path / "other", (7, 1, NEVER_MS))
    assert in_json("inspect transactions", logs, "--transaction-state", states).partition("t-0")["open"][0]["two_phase"] == "yes"
    (tmp_path / "older").mkdir()
    other = state_log(tmp_path / "older", (7, 1, 60_000))
    unknown = in_json("inspect transactions", logs, "--transaction-state", other).partition("t-0")["open"][0]
    assert (unknown["transactional_id"], unknown["timeout_ms"]) == ("id-7", None), "a producer keeps its transactional id"
    assert (unknown["two_phase"], unknown["is_late"], unknown["abort_commands"]) == ("unknown", True, None), (
        "that epoch says nothing of the one before"
    )


def test_the_state_log_below_the_path_is_read(tmp_path: Path) -> None:
    open_transactions(tmp_path, 7)
    state_log(tmp_path, (7, 0, NEVER_MS))
    assert in_json("inspect transactions", tmp_path).partition("t-0")["open"][0]["two_phase"] == "yes"


def test_where_all_are_known_nothing_has_to_be_checked(tmp_path: Path) -> None:
    logs, states = open_transactions(tmp_path / "logs", 7, 8), state_log(tmp_path / "other", (7, 0, 1), (8, 0, 900_000))
    run = snaprebuild("inspect", "transactions", logs, "--transaction-state", states)
    assert run.stdout.count("find-hanging") == 1
    assert "two-phase" not in run.stdout


def test_a_damaged_state_log_proves_nothing(tmp_path: Path) -> None:
    logs, states = open_transactions(tmp_path / "logs", 7), state_log(tmp_path / "other", (8, 0, 1), (7, 0, 60_000))
    log = states / f"{0:020d}.log"
    flip(log, log.stat().st_size - 3)
    run = in_json("inspect transactions", logs, "--transaction-state", states)
    assert run.partition("t-0")["open"][0]["two_phase"] == "unknown"
    assert run.codes["unread-transaction-state"] == 1
    assert run.document["unread"] == 1


def test_a_directory_without_a_state_log(tmp_path: Path) -> None:
    run = snaprebuild("inspect", "transactions", open_transactions(tmp_path, 7), "--transaction-state", tmp_path)
    assert run.exit_code == 2
    assert "there is no partition of __transaction_state" in run.stderr
