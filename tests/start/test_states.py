"""The answer of each command for each state of a directory, and for the forms of health: first line, exit code, next command.

The property that holds for all of them: no command is greener than what another one proves from the same files.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import in_json, snaprebuild, snaprebuild_process
from log_dirs import batch, cut, snapshot_name
from manifests import FIXTURES
from other_process import live_broker
from sentences import CORRECTS_NOTHING, METADATA_LOG_ENDS, NO_START, NONE_MISSING, RECORDS_REMOVED, STRAY_WITHOUT_ID
from stopped_broker import END, append, last_segment, made

Change = Callable[[Path], None]
RELEASE = ("--kafka-release", "4.3.1")


def _nothing(directory: Path) -> None:
    """Leaves the directory as the broker left it."""


def _lost_end(directory: Path) -> None:
    for path in (*directory.glob(f"{20:020d}.*"), directory / snapshot_name(END)):
        path.unlink()


def _no_segment(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


def _below_log_start(directory: Path) -> None:
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 0 31\n")


def _killed(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").unlink()


def _killed_and_short(directory: Path) -> None:
    _killed(directory)
    cut(last_segment(directory), len(batch(20)) * 4)


def _killed_and_damaged(directory: Path) -> None:
    _killed_and_short(directory)
    append(last_segment(directory), bytes(300))


def _zeros(directory: Path) -> None:
    append(last_segment(directory), bytes(4096))


def _index_gone(directory: Path) -> None:
    (directory / f"{0:020d}.index").unlink()


def _transaction_index_of_zeros(directory: Path) -> None:
    (directory / f"{10:020d}.txnindex").write_bytes(bytes(34))


def _transaction_index_of_a_later_version(directory: Path) -> None:
    (directory / f"{10:020d}.txnindex").write_bytes(b"\1" + bytes(33))


def _no_topic_id(directory: Path) -> None:
    (directory / "partition.metadata").unlink()


def _topic_id_empty(directory: Path) -> None:
    (directory / "partition.metadata").write_bytes(b"")


def _topic_id_zero(directory: Path) -> None:
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA")


def _epochs_empty(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_bytes(b"")


def _epochs_cut(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n1\n7 20\n")


def _epochs_malformed(directory: Path) -> None:
    (directory / "leader-epoch-checkpoint").write_text("0\n1\nrubbish\n")


def _meta_empty(directory: Path) -> None:
    (directory.parent / "meta.properties").write_bytes(b"")
    (directory.parent / "__cluster_metadata-0").mkdir()


def _meta_without_node_id(directory: Path) -> None:
    (directory.parent / "meta.properties").write_text("version=0\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\n")
    (directory.parent / "__cluster_metadata-0").mkdir()


def _foreign_directory(directory: Path) -> None:
    (directory.parent / "backup").mkdir()


STATES: dict[str, tuple[Change, str, int, bool]] = {
    "lost end": (_lost_end, "orders-0 lost its end: 20, its checkpoints say 30.", 4, True),
    "no segment": (_no_segment, "1 partition has no segment (orders-0); high watermarks up to 30.", 4, True),
    "below log start": (_below_log_start, "The start deletes orders-0: it ends at 30, below its log start 31.", 4, True),
    "killed, short": (
        _killed_and_short,
        "orders-0 ends 6 below its high watermark; it catches up from a replica in sync.",
        1,
        True,
    ),
    "killed, damaged": (_killed_and_damaged, f"{RECORDS_REMOVED}24 to 29 of orders-0, which were acknowledged.", 4, True),
    "zeros": (_zeros, "The first start fails, the second recovers orders-0 and cuts 4.0 KiB.", 4, True),
    "index": (
        _index_gone,
        "The next start rebuilds an index of orders-0 and removes 3 snapshots. Start, stop, run again.",
        1,
        False,
    ),
    "txnindex": (
        _transaction_index_of_zeros,
        "The next start rebuilds an index of orders-0 and removes 2 snapshots. Start, stop, run again.",
        1,
        False,
    ),
    "txnindex version": (
        _transaction_index_of_a_later_version,
        f"{NO_START}a .txnindex of an unknown version (orders-0).",
        4,
        True,
    ),
    "no topic id": (_no_topic_id, f"The start sets orders-0 {STRAY_WITHOUT_ID}.", 1, True),
    "empty topic id": (_topic_id_empty, f"{NO_START}partition.metadata is empty or cut (orders-0).", 4, True),
    "zero topic id": (_topic_id_zero, " goes offline at the start: orders-0, partition.metadata has the id zero.", 4, True),
    "no epochs": (
        _epochs_empty,
        "Do not let this replica of orders-0 lead: Kafka would delete its remote segments.",
        4,
        True,
    ),
    "cut epochs": (_epochs_cut, "Do not let this replica of orders-0 lead: Kafka would delete remote epochs below 7.", 4, True),
    "malformed epochs": (_epochs_malformed, " goes offline at the start: orders-0, malformed leader-epoch-checkpoint.", 4, True),
    "empty meta.properties": (_meta_empty, f"{NO_START}meta.properties is empty.", 4, True),
    "no node id": (_meta_without_node_id, f"{NO_START}meta.properties has no node id.", 4, True),
    "foreign directory": (_foreign_directory, f"{NO_START}a directory that is no partition (backup).", 4, True),
}
"""A change of the directory; the first line; the exit code; whether ``--fail-closed`` holds the broker."""


def started(directory: Path, *options: str) -> bool:
    """Whether ``before-start`` starts the command."""
    witness = directory.parent.parent / "started"
    snaprebuild_process("before-start", directory.parent, *RELEASE, "--dry-run", *options, "--", "touch", witness)
    is_started = witness.exists()
    witness.unlink(missing_ok=True)
    return is_started


@pytest.mark.parametrize("state", STATES)
def test_the_first_line_of_each_state(tmp_path: Path, state: str) -> None:
    change, first, code, _ = STATES[state]
    directory = made(tmp_path)
    change(directory)
    run = snaprebuild("scan", directory.parent, *RELEASE)
    assert first in run.text.partition(" Next: ")[0]
    assert run.exit_code == code
    follows = run.text.partition(" Next: ")[2]
    if state in ("index", "txnindex"):
        assert follows.startswith("start and stop the broker once, then run this command again.")
    else:
        assert follows.startswith(CORRECTS_NOTHING)
    verified = snaprebuild("verify", directory.parent, *RELEASE)
    assert first in verified.text.partition(" Next: ")[0], "no command is greener than another one"
    assert verified.exit_code >= min(code, 4)
    for each in (run, verified):
        assert len(each.stdout.splitlines()[0]) <= 100


def missing_at_10(tmp_path: Path, state: str) -> Path:
    """The partition in a state, and without the snapshot at 10."""
    directory = made(tmp_path)
    (directory / snapshot_name(10)).unlink()
    STATES[state][0](directory)
    return directory


WRITTEN_ALL_THE_SAME = ("txnindex",)
"""The start loses no record."""
REMOVED_AT_START = ("index",)
"""The start makes an index anew, and removes the snapshots above its segment: none is written."""
NOTHING_IS_DUE = ("no segment", "below log start")
KEPT_OUT = [state for state in STATES if state not in (*WRITTEN_ALL_THE_SAME, *REMOVED_AT_START, *NOTHING_IS_DUE)]


@pytest.mark.full
@pytest.mark.parametrize("state", [*KEPT_OUT, *WRITTEN_ALL_THE_SAME])
def test_nothing_is_written_into_a_partition_that_the_start_loses(tmp_path: Path, state: str) -> None:
    directory = missing_at_10(tmp_path, state)
    run = in_json("rebuild", directory.parent, *RELEASE)
    assert (directory / snapshot_name(10)).exists() is (state not in KEPT_OUT)
    if state in KEPT_OUT:
        assert run.exit_code == 3
        assert "refused" in {finding["severity"] for finding in run.document["findings"]}


@pytest.mark.full
@pytest.mark.parametrize("state", REMOVED_AT_START)
def test_nothing_is_written_that_the_start_removes_again(tmp_path: Path, state: str) -> None:
    directory = missing_at_10(tmp_path, state)
    staged = tmp_path / "staged"
    staged.mkdir()
    for words in ("rebuild", "plan", f"stage --to {staged}", "before-start"):
        verb, *options = words.split()
        run = in_json(verb, directory.parent, *options, *RELEASE)
        assert run.exit_code == 1, words
        assert "snapshot-removed-at-start" in {finding["code"] for finding in run.document["findings"]}, words
    assert not (directory / snapshot_name(10)).exists()


@pytest.mark.full
@pytest.mark.parametrize("state", ["zeros", "cut epochs", "foreign directory", "killed, short"])
def test_elsewhere_it_is_written(tmp_path: Path, state: str) -> None:
    directory = missing_at_10(tmp_path, state)
    run = snaprebuild("rebuild", directory.parent, "--out", tmp_path / "out", *RELEASE)
    assert run.exit_code <= 1
    assert (tmp_path / "out" / "orders-0" / snapshot_name(10)).exists()


def test_the_first_line_is_that_of_the_fate(tmp_path: Path) -> None:
    """Also where another partition is written to; and the next command shows all fates."""
    directory = missing_at_10(tmp_path, "cut epochs")
    other = made(tmp_path / "other")
    (other / snapshot_name(10)).unlink()
    shutil.move(other, directory.parent / "payments-0")
    run = snaprebuild("rebuild", directory.parent, *RELEASE)
    assert run.text.startswith(f"{STATES['cut epochs'][1]} 1 snapshot written in 1 of 2 partitions.")
    assert f"Next: snaprebuild scan {directory.parent} --kafka-release 4.3.1" in run.text
    assert run.exit_code == 3
    assert (directory.parent / "payments-0" / snapshot_name(10)).exists()
    assert not (directory / snapshot_name(10)).exists()


@pytest.mark.full
@pytest.mark.parametrize("state", [*KEPT_OUT, *WRITTEN_ALL_THE_SAME])
def test_the_other_verbs_that_write_leave_it_out_too(tmp_path: Path, state: str) -> None:
    """Files that were staged while all was well are not installed. ``before-start`` writes nothing there, and begins with the
    fate."""
    change, first, code, _ = STATES[state]
    directory = made(tmp_path)
    (directory / snapshot_name(10)).unlink()
    (tmp_path / "staged").mkdir()
    staged = tmp_path / "staged" / "plan.jsonl"
    assert snaprebuild("stage", directory.parent, "--to", staged.parent, *RELEASE).exit_code <= 1
    change(directory)
    is_written = state not in KEPT_OUT
    for words in (("plan", directory.parent, *RELEASE), ("stage", directory.parent, "--to", staged.parent, *RELEASE, "--dry-run")):
        assert (snaprebuild(*words).exit_code == 3) is not is_written, words
    assert (snaprebuild("install", "--plan", staged).exit_code == 3) is not is_written
    assert (directory / snapshot_name(10)).exists() is is_written
    (directory / snapshot_name(10)).unlink(missing_ok=True)
    run = snaprebuild("before-start", directory.parent, *RELEASE)
    assert state in WRITTEN_ALL_THE_SAME or first in run.text
    assert run.exit_code in (code, 3), "3: the replica is no source, either"
    assert (directory / snapshot_name(10)).exists() is is_written


def _batch_not_whole(directory: Path) -> None:
    append(last_segment(directory), batch(END)[:40])


def _deleted_topic(directory: Path) -> None:
    shutil.copytree(directory, directory.parent / f"gone-0.{'a' * 32}-delete")


def _moved_partition(directory: Path) -> None:
    shutil.copytree(directory, directory.parent / f"orders-1.{'a' * 32}-future")


def _index_cache(directory: Path) -> None:
    (directory.parent / "remote-log-index-cache").mkdir()


def _checkpoints_without_a_byte(directory: Path) -> None:
    (directory.parent / "cleaner-offset-checkpoint").write_bytes(b"")
    (directory.parent / "log-start-offset-checkpoint").write_text("0\n")


def _left_by_2_7(directory: Path) -> None:
    """A snapshot at no base offset, which the first start of a later release removes."""
    shutil.copy(directory / snapshot_name(20), directory / snapshot_name(15))


HEALTHY: dict[str, Change] = {
    "clean": _nothing,
    "killed": _killed,
    "batch not whole": _batch_not_whole,
    "deleted topic": _deleted_topic,
    "moved partition": _moved_partition,
    "index cache": _index_cache,
    "empty checkpoints": _checkpoints_without_a_byte,
    "left by 2.7": _left_by_2_7,
}


@pytest.mark.parametrize("kraft", [True, False])
@pytest.mark.parametrize("form", HEALTHY)
def test_health_is_no_finding(tmp_path: Path, form: str, *, kraft: bool) -> None:
    directory = made(tmp_path, kraft=kraft)
    HEALTHY[form](directory)
    release = RELEASE if kraft else ("--kafka-release", "3.9.1")
    for verb in ("scan", "verify"):
        run = in_json(verb, directory.parent, *release)
        assert run.exit_code == 0, (verb, run.stderr)
        assert {finding["severity"] for finding in run.document["findings"]} <= {"note"}
    first = snaprebuild("scan", directory.parent, *release).text
    assert first.startswith(f"{NONE_MISSING}1 partition.")
    assert ("Unclean stop: the start recovers 1 partition" in first) is (form == "killed")


def test_a_cleaner_at_work_is_no_finding(tmp_path: Path) -> None:
    directory = made(tmp_path)
    other = Path(shutil.copytree(directory, directory.parent / "compacted-0"))
    (other / f"{0:020d}.log.cleaned").write_bytes(b"")
    with live_broker(directory.parent):
        run = in_json("scan", directory.parent)
        assert run.exit_code == 0
        assert "cleaner-at-work" in run.codes
    assert in_json("scan", directory.parent).exit_code == 1, "what a stopped broker left"


def test_many_partitions_with_one_cause_are_one_finding(tmp_path: Path) -> None:
    directory = made(tmp_path)
    for number in range(1, 52):
        shutil.copytree(directory, directory.parent / f"orders-{number}")
    for path in directory.parent.glob("orders-*"):
        (path / "partition.metadata").write_bytes(b"")
    run = in_json("scan", directory.parent, *RELEASE)
    (finding,) = [each for each in run.document["findings"] if each["code"] == "unreadable-topic-id"]
    assert "of 52 partitions: orders-0, orders-1, orders-2 and 49 more" in finding["message"]
    assert finding["path"] == str(directory.parent)


@pytest.mark.parametrize(
    ("name", "stray"), [("kraft-cluster3/old", None), ("damaged/foreign-topic", "payments-0"), ("damaged/healthy/node", None)]
)
def test_strays_by_the_metadata_log_of_a_real_node(name: str, stray: str | None) -> None:
    """Copies of two nodes, each of them as its own metadata log has it; a partition of another topic, and a healthy node."""
    document = in_json("scan", FIXTURES / name).document
    found = {(fate["kind"], fate["subject"]) for fate in document["fates"] if fate["severity"] != "note"}
    assert found == (set() if stray is None else {("stray", stray)})
    assert (document["status"] == "fate") is (stray is not None)
    assert all(fate["age"].startswith(METADATA_LOG_ENDS) for fate in document["fates"])


@pytest.mark.full
@pytest.mark.parametrize("state", [*STATES, *HEALTHY])
def test_before_start_holds_a_broker_only_for_what_its_start_loses(tmp_path: Path, state: str) -> None:
    directory = made(tmp_path)
    change = STATES[state][0] if state in STATES else HEALTHY[state]
    change(directory)
    assert started(directory)
    assert started(directory, "--fail-closed") is not (state in STATES and STATES[state][3])
