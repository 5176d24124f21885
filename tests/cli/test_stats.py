"""``inspect stats`` as a user runs it: the bundled directories against a count batch by batch, tables, and what is said of damage."""

from pathlib import Path

from command import in_json, snaprebuild
from counted_by_hand import over_partitions, partition_in, totals_of, without
from log_dirs import batch, copy_of, cut, flip, make_log_dir, tree, write_partition
from manifests import FIXTURES, REPOSITORY, bundled
from sentences import LISTED_ON_STDERR

AS_OF, DAY = 1_795_262_400_000, 86_400_000


def test_bundled_directories() -> None:
    """Every partition, every topic and everything, with every segment and every producer."""
    before = tree(bundled("damaged"))
    run = in_json("inspect stats", bundled("damaged").relative_to(REPOSITORY), "--as-of", AS_OF, "--top", 1000)
    assert tree(bundled("damaged")) == before
    hand = {each["path"]: partition_in(Path(each["path"]), AS_OF, DAY) for each in run.document["partitions"]}
    assert {str(path.parent) for path in bundled("damaged").rglob("0*.log")} <= set(hand)
    for each in run.document["partitions"]:
        expected = hand[each["path"]]
        assert without(each["totals"], "read_bytes") == totals_of([expected], AS_OF, DAY)
        assert each["segments"] == expected.segments
    topics = {path: each["topic_partition"].rpartition("-")[0] for path, each in zip(hand, run.document["partitions"], strict=True)}
    assert {each["topic"] for each in run.document["topics"]} == set(topics.values())
    for each in run.document["topics"]:
        members = [hand[path] for path, topic in topics.items() if topic == each["topic"]]
        assert without(each["totals"], "read_bytes") == totals_of(members, AS_OF, DAY)
    assert without(run.document["totals"], "read_bytes") == totals_of(list(hand.values()), AS_OF, DAY)
    rows = sorted(over_partitions(list(hand.values())).values(), key=lambda row: (-row["batches"], row["producer_id"]))
    assert run.document["producers"] == rows[:1000]
    assert run.exit_code == 0, run.stderr


def test_a_broken_partition(tmp_path: Path) -> None:
    """Exit 4 and the place. The count of everything else is tested in tests/inspect/test_stats.py."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / "00000000000000001151.log"
    cut(path, -10)
    run = in_json("inspect stats", logs, "--as-of", AS_OF)
    assert (run.exit_code, run.codes) == (4, {"damaged-segment": 1})
    assert str(path) in run.messages("damaged-segment")
    table = snaprebuild("inspect", "stats", logs, "--as-of", AS_OF)
    assert table.exit_code == 4
    assert table.stdout.splitlines()[-1] == f"1 partition damaged or not readable {LISTED_ON_STDERR}shows why"


def test_checksums_are_computed_where_they_are_asked_for(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    flip(logs / "mixed-0" / "00000000000000000000.log", 70)
    assert in_json("inspect stats", logs).codes == {}
    checked = in_json("inspect stats", logs, "--crc", "check")
    assert (checked.exit_code, checked.codes) == (4, {"bad-checksum": 1})
    assert checked.document["totals"]["batches"] == in_json("inspect stats", logs).document["totals"]["batches"]


def test_a_selection_and_an_expiration() -> None:
    run = in_json("inspect stats", "fixtures/kafka27-mixed", "--topic", "mix*", "--as-of", AS_OF, "--expiration-ms", 5)
    hand = partition_in(FIXTURES / "kafka27-mixed" / "logs" / "mixed-0", AS_OF, 5)
    assert without(run.document["totals"], "read_bytes") == totals_of([hand], AS_OF, 5)
    assert [each["expiration_ms"] for each in run.document["totals"]["by_expiration"]] == [5, DAY // 24, DAY // 4, DAY, 7 * DAY]
    assert run.document["expiration_ms"] == 5


def test_tables_are_limited_and_say_so(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    for number in range(5):
        write_partition(logs / f"t{number}-0", {0: b"".join(batch(at, producer_id=number) for at in range(number + 1))})
    text = snaprebuild("inspect", "stats", logs, "--top", 2, "-v").stdout
    for what in ("Topics", "Partitions", "Producers"):
        assert f"{what}, the top 2 of 5\n" in text
    names = [line.split()[0] for line in text.splitlines() if line.startswith(" t") and line.split()[0][1:2].isdigit()]
    assert names == ["t4", "t3", "t4-0", "t3-0", "t4-0", "t3-0"], "topics, partitions, and their segments"
    last = "5 partitions: 5 producer ids, of which 1 (20.0 %) wrote one batch only; 0 live entries, snapshots of 50 B"
    assert " ".join(text.split()).endswith(last)
    run = in_json("inspect stats", logs, "--top", 2)
    assert len(run.document["topics"]) == len(run.document["partitions"]) == 5
    assert [each["segments"] is None for each in run.document["partitions"]] == [False, False, True, True, True]
    assert [each["producer_id"] for each in run.document["producers"]] == [4, 3]


def test_epochs_near_their_end_are_reported(tmp_path: Path) -> None:
    logs = make_log_dir(tmp_path / "logs")
    data = batch(0, producer_id=7, epoch=31_999) + batch(1, producer_id=7, epoch=32_000) + batch(2, producer_id=8, epoch=31_999)
    write_partition(logs / "t-0", {0: data})
    reported = "1 producer with an epoch of 32000 or more, the highest is 32000: at 32766 it gets a new id"
    assert reported in snaprebuild("inspect", "stats", logs).text
    assert in_json("inspect stats", logs).document["totals"]["producers"]["near_limit"] == 1


def test_a_damaged_batch_may_claim_any_offset(tmp_path: Path) -> None:
    """One below 0 is invalid; the message has the value. For every verb that reads batches."""
    logs = make_log_dir(tmp_path / "logs")
    write_partition(logs / "t-0", {0: batch(0, producer_id=7) + batch(-5, producer_id=7, sequence=1)})
    (path,) = (logs / "t-0").glob("*.log")
    for verb in ("inspect stats", "verify", "inspect transactions"):
        run = in_json(verb, logs)
        assert run.exit_code == 4
        (finding,) = [each for each in run.document["findings"] if each["code"] == "disordered-offsets"]
        assert finding["offset"] is None
        assert "-5" in finding["message"]
    dumped = snaprebuild("inspect", "dump", path, "--output", "json")
    assert '"found":"-5","code":"disordered-offsets"' in dumped.stdout
    assert '"offset":0}' not in dumped.stdout
