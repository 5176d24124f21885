"""A broker works while each reading verb runs: no file that it deletes ends a partition, and each verdict is that of some moment."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from budgets import TIER, by_turns, each_seed, scaled
from busy_log import SEGMENTS, BusyBroker, Moment
from command import Run, snaprebuild
from every_verb import VERBS as EVERY_VERB
from every_verb import filled, written
from log_dirs import entries_in
from sentences import DELETED_MEANWHILE
from simulated_broker import Entries, SimulatedBroker

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild import ReplayOptions, UploadRefusedError, prepare_upload

CLOCK = ("--as-of", "0", "--expiration-ms", "9000000000000")
"""No producer has expired."""
ONE_JOB = ("--jobs", "1")
VERBS: dict[str, tuple[str, ...]] = {
    "scan": (),
    "plan": CLOCK,
    "verify": (*CLOCK, *ONE_JOB),
    "rebuild --out {out}": (*CLOCK, *ONE_JOB),
    "rebuild --dry-run": (*CLOCK, *ONE_JOB),
    "stage --to {out}": (*CLOCK, *ONE_JOB),
    "inspect stats": (*CLOCK, *ONE_JOB),
    "inspect transactions": ("--as-of", "0", *ONE_JOB),
    "inspect explain --producer-id {producer}": (*CLOCK, *ONE_JOB),
    "follower offsets --isolation read_committed --timestamp -1": ONE_JOB,
    "follower fetch-path --offset 0": (),
}
NO_SEGMENT_IS_READ = {"scan"}
BY_THE_WAY = {
    "not-known-to-be-due",  # of a run in place, above the recovery point and the high watermark of the broker that is at work
    "missing-snapshots",
    "delete-directory",
    "nothing-found",
    "unknown-producer",
    "offset-assumed",
    "transaction-index-differs",
}
"""Findings that are right at some moment. The simulated broker writes no transaction index."""
RIGHT = {"equal", "equal_after_expiry", "unverifiable"}


def ran(verb: str, broker: BusyBroker, out: Path) -> tuple[Run, dict[str, Any]]:
    """A verb over the log directory."""
    words = verb.format(out=out, producer=asked_of(broker)).split()
    options = VERBS.get(verb, (*CLOCK, *ONE_JOB))
    found = snaprebuild(*words, str(broker.root), *options, "--output", "json")
    return found, json.loads(found.stdout) if found.stdout else {}


def asked_of(broker: BusyBroker) -> int:
    """A producer of the first topic."""
    return min(broker.truths[0].segments[5].whole, default=0)


def wrong_codes(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in document["findings"] if each["severity"] != "note" and each["code"] not in BY_THE_WAY]


# ------------------------------------------------------------------------------------------------------- one deletion at the worst moment


@pytest.mark.parametrize("verb", sorted(set(VERBS) - NO_SEGMENT_IS_READ))
@pytest.mark.parametrize("how", ["retention", "DeleteRecords"])
def test_a_segment_is_deleted_between_its_listing_and_its_first_read(verb: str, how: str, tmp_path: Path) -> None:
    broker = BusyBroker(7, tmp_path / "logs")
    delete: Callable[[], None] = {"retention": broker._retain, "DeleteRecords": broker._delete_records}[how]
    broker.step = lambda: broker.deletions == 0 and (delete(), setattr(broker, "deletions", 1))  # type: ignore[method-assign]
    wanted = broker.active if verb.startswith(("plan", "follower fetch-path", "follower offsets")) else 0
    first = broker._path(wanted, ".log").name
    with broker.at_work(1, lambda path: path.endswith(first)):
        found, document = ran(verb, broker, tmp_path / "out")
    assert broker.deletions == 1
    assert found.exit_code in (0, 1), found
    assert wrong_codes(document) == []
    assert document["unread"] == 0
    assert [each["topic_partition"] for each in document["partitions"]] == ["t-0"], "it is not lost"


def deleted_name(directory: Path) -> Path:
    """The name that ``LocalLog.logDeleteDirName`` gives."""
    return directory.with_name(f"{directory.name}.{'0123456789abcdef' * 2}-delete")


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_a_topic_is_deleted_after_it_was_listed(verb: str, tmp_path: Path) -> None:
    broker = BusyBroker(7, tmp_path / "logs")
    broker.step = lambda: broker.directory.exists() and broker.directory.rename(deleted_name(broker.directory))  # type: ignore[method-assign]
    with broker.at_work(1, lambda path: path.endswith(".log") or (verb == "scan" and path.endswith(".snapshot"))):
        found, document = ran(verb, broker, tmp_path / "out")
    assert not broker.directory.exists()
    assert found.exit_code in (0, 1), found
    assert wrong_codes(document) == []
    assert "gone-meanwhile" in {each["code"] for each in document["findings"]}
    assert [each for each in document["findings"] if each["severity"] != "note" and each["code"] == "gone-meanwhile"] == []
    assert {each["severity"] for each in document["findings"] if each["code"] == "gone-meanwhile"} == {"note"}
    assert document["unread"] == 0


@pytest.mark.parametrize("end", ["stray", "elsewhere", "removed"])
@pytest.mark.parametrize("verb", sorted(VERBS))
def test_any_other_disappearance_is_a_finding(verb: str, end: str, tmp_path: Path) -> None:
    """A replica that a broker calls stray, one that somebody moved, and one that is gone without a trace."""
    broker = BusyBroker(7, tmp_path / "logs")
    to = {"stray": deleted_name(broker.directory).with_suffix(f".{'0123456789abcdef' * 2}-stray"), "elsewhere": tmp_path / "t-0"}

    def vanish() -> None:
        if broker.directory.exists():
            broker.directory.rename(to[end]) if end in to else shutil.rmtree(broker.directory)

    broker.step = vanish  # type: ignore[method-assign]
    with broker.at_work(1, lambda path: path.endswith(".log") or (verb == "scan" and path.endswith(".snapshot"))):
        found, document = ran(verb, broker, tmp_path / "out")
    assert found.exit_code == 1, found
    assert {each["severity"] for each in document["findings"] if each["code"] == "gone-meanwhile"} == {"finding"}
    assert document["unread_paths"] == [str(broker.directory)]


@pytest.mark.parametrize("verb", ["scan", "verify", "plan", "inspect stats"])
def test_the_first_line_says_what_was_deleted(verb: str, tmp_path: Path) -> None:
    broker = BusyBroker(7, tmp_path / "logs")
    broker.step = lambda: broker.directory.exists() and broker.directory.rename(deleted_name(broker.directory))  # type: ignore[method-assign]
    with broker.at_work(1, lambda path: path.endswith(".log") or (verb == "scan" and path.endswith(".snapshot"))):
        ran_ = snaprebuild(*verb.split(), str(broker.root))
    assert ran_.exit_code == 0, ran_
    assert ran_.text.startswith(f"1 partition {DELETED_MEANWHILE}."), ran_


def test_a_topic_is_deleted_while_the_log_directory_is_listed(tmp_path: Path) -> None:
    broker = BusyBroker(7, tmp_path / "logs")
    broker.step = lambda: broker.directory.exists() and broker.directory.rename(deleted_name(broker.directory))  # type: ignore[method-assign]
    with broker.at_work(1, lambda path: path.endswith("t-0")):
        found, document = ran("scan", broker, tmp_path / "out")
    assert found.exit_code == 0
    assert [(each["code"], each["severity"]) for each in document["findings"]][:1] == [("gone-meanwhile", "note")]


@pytest.mark.parametrize("verb", ["plan", "verify", "rebuild --out {out}", "inspect stats", "inspect transactions"])
def test_a_partition_that_rolls_faster_than_it_can_be_listed(verb: str, tmp_path: Path) -> None:
    """That is a note about a busy log, and its result is known to be missing."""
    broker = BusyBroker(7, tmp_path / "logs")
    broker.step = lambda: broker.active + 2 < SEGMENTS and broker._delete_records()  # type: ignore[method-assign]
    with broker.at_work(1, lambda path: path.endswith(".log")):
        found, document = ran(verb, broker, tmp_path / "out")
    assert found.exit_code == 1
    assert [each["severity"] for each in document["findings"] if each["code"] == "busy-log"] == ["note"]
    assert document["unread_paths"] == [str(broker.directory)]
    if verb != "inspect stats":  # it only shows what there is
        assert document["next_command"] is None
        assert document["answer"].startswith("INCOMPLETE: 1 ")
        assert "1 path could not be read: deleted or changed meanwhile." in document["answer"]


# ------------------------------------------------------------------------------------------------------ a directory that vanishes

WRITING = {"install", "before-start", "follower repair", "rebuild in place", "tier repair", "undo"}
"""They may fail to write into a directory that vanishes."""
VANISHING = ("log", "bare", "lost", "node", "controller", "tier", "aiven", "zookeeper")
"""Directories of ``every_verb``: log directories, metadata logs, remote storage."""
REMOTE = ("tier", "aiven")
"""Retention deletes the lowest copies and never all: those of a store that vanishes were not read, which is told as such (exit 5)."""
DAMAGED_TIER = {"follower check", "tier audit (plugin)", "tier audit --ledger"}
"""A copy that lacks an object is lost in remote storage, whether that happened a moment ago or last year."""


MOMENTS = {"quick": (1, 2, 3, 5, 8, 15), "full": (1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 28, 39), "night": range(1, 40)}[TIER]
"""Calls before which the directory is removed: what a verb lists first is different each time, what follows repeats itself."""


@contextlib.contextmanager
def vanishing(directory: Path, at: int) -> Iterator[Callable[[], bool]]:
    """While it is, the directory is removed just before the n-th call below it. Yields whether that has happened."""
    calls, is_gone = 0, False
    real = {name: getattr(os, name) for name in ("open", "scandir", "listdir", "stat", "lstat")}

    def removing(call: Callable[..., Any]) -> Callable[..., Any]:
        def replacement(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            nonlocal calls, is_gone
            if not is_gone and isinstance(path, str | os.PathLike) and os.fspath(path).startswith(str(directory)):
                calls += 1
                if calls == at:
                    is_gone = True
                    shutil.rmtree(directory)
            return call(path, *arguments, **options)

        return replacement

    with contextlib.ExitStack() as patched:
        for name, call in real.items():
            patched.enter_context(mock.patch.object(os, name, removing(call)))
        yield lambda: is_gone


@pytest.mark.parametrize("name", by_turns(sorted(set(EVERY_VERB) - WRITING)))
def test_a_directory_that_vanishes_is_no_storage_failure(name: str, tmp_path: Path) -> None:
    """The whole log directory, or a partition, at each early moment of a run of each reading verb."""
    verb = EVERY_VERB[name]
    made = tmp_path / "made"
    written(verb, made)
    trees = [each for each in VANISHING if each in verb.reads and not (each in REMOTE and name in DAMAGED_TIER)]
    below = ("payments-0", "__cluster_metadata-0")
    targets = [*trees, *(f"{each}/{one}" for each in trees for one in below if (made / each / one).is_dir())]
    targets = [each for each in targets if (made / each).is_dir()]
    for number, target in enumerate(targets):
        # The quick tier takes every third moment of a target, and others of the next one.
        for at in MOMENTS[number % 3 :: 3] if TIER == "quick" else MOMENTS:
            # The same path each time: what commands made names it.
            shutil.copytree(made, tmp_path / "kept", dirs_exist_ok=True)
            with vanishing(made / target, at) as has_vanished:
                found = snaprebuild(*filled(verb.arguments, made))
            gone = has_vanished()
            context = f"{target}, call {at}: {found}"
            if target.startswith(REMOTE) and found.exit_code == 5:
                failures = [line for line in found.stderr.splitlines() if line.startswith("storage: ")]
                assert failures, context
                assert all("since it was listed" in line or "since the store was listed" in line for line in failures), context
            else:
                assert found.exit_code in (0, 1, 2, 3, 4), context
            shutil.rmtree(made)
            (tmp_path / "kept").rename(made)
            (tmp_path / "out.jsonl").unlink(missing_ok=True)
            if not gone:
                break


# ----------------------------------------------------------------------------------------------------------- a snapshot in flux


@pytest.fixture
def writing(tmp_path: Path) -> BusyBroker:
    """A broker up to 2.7, in the middle of writing a snapshot that was just created."""
    broker = BusyBroker(7, tmp_path / "logs", lacks_snapshots=0)
    wanted = broker.active + 1
    while broker.active < wanted:
        broker._append()
    assert broker.half is not None
    return broker


@pytest.mark.parametrize("verb", ["scan", "plan", "verify", "rebuild --out {out}", "inspect explain --producer-id {producer}"])
@pytest.mark.parametrize("size", [0, 40])
def test_a_snapshot_that_is_whole_when_it_is_read(verb: str, size: int, writing: BusyBroker, tmp_path: Path) -> None:
    """It was listed with the bytes that it had then."""
    assert writing.half is not None
    path, data = writing.half
    path.write_bytes(data[:size])
    writing.step = lambda: path.write_bytes(data)  # type: ignore[method-assign, assignment, return-value]
    os.utime(path)
    with writing.at_work(1, lambda each: each == str(path)):
        _, document = ran(verb, writing, tmp_path / "out")
    assert wrong_codes(document) == []
    assert "in-flux" not in {each["code"] for each in document["findings"]}


@pytest.mark.parametrize(
    "verb", ["scan", "plan", "verify", "rebuild --out {out} --boundaries all", "inspect explain --producer-id {producer}"]
)
def test_a_snapshot_that_is_still_being_written(verb: str, writing: BusyBroker, tmp_path: Path) -> None:
    assert writing.half is not None
    os.utime(writing.half[0])
    with writing.at_work(1, lambda _: False):
        _, document = ran(verb, writing, tmp_path / "out")
    assert wrong_codes(document) == []
    assert [each["severity"] for each in document["findings"] if each["code"] == "in-flux"] == ["note"]


def test_a_damaged_snapshot_next_to_a_broker_is_reported_after_a_minute(writing: BusyBroker, tmp_path: Path) -> None:
    """A file that no one writes any more is no file in flux."""
    assert writing.half is not None
    long_ago = writing.half[0].stat().st_mtime_ns - 61 * 10**9
    os.utime(writing.half[0], ns=(long_ago, long_ago))
    with writing.at_work(1, lambda _: False):
        _, scanned = ran("scan", writing, tmp_path / "out")
        _, verified = ran("verify", writing, tmp_path / "out")
    assert "corrupt-snapshot" in {each["code"] for each in scanned["findings"]}
    assert "wrong-snapshot" in {each["code"] for each in verified["findings"]}


# ------------------------------------------------------------------------------------------------------------------- every step


class Truth:
    """Facts that are true of the partition at some moment of a run."""

    def __init__(self, broker: BusyBroker) -> None:
        self.moments = [each for each in broker.moments if each.topic >= 0]
        self.truths = broker.truths

    def states(self, offset: int) -> Iterator[Entries]:
        """The state at an offset, from each log start that there was, or with what the broker remembers from before it."""
        for topic, first in sorted({(each.topic, each.first) for each in self.moments}):
            yield self.truths[topic].folded(offset, first)
            yield self.truths[topic].folded(offset)

    def missing(self, moment: Moment) -> list[int]:
        """Boundaries that need a snapshot and have none."""
        segments = self.truths[moment.topic].segments[moment.first + 1 : moment.active + 1]
        bases = [each.base_offset for each in segments if moment.log_start < each.base_offset <= moment.recovery_point]
        return [each for each in bases if each not in moment.names]

    @property
    def boundaries(self) -> set[int]:
        return {
            self._of(each).segments[index].base_offset for each in self.moments for index in range(each.first + 1, each.active + 1)
        }

    @property
    def log_ends(self) -> set[int]:
        return {each.log_end for each in self.moments}

    def batches(self) -> set[int]:
        """Counts of batches from a log start to a log end."""
        return {
            sum(each.first_base <= batch < other.log_end for batch in self._last_offsets(each.topic))
            for each in map(self._with_base, self.moments)
            for other in self.moments
            if other.topic == each.topic
        }

    def _of(self, moment: Moment) -> SimulatedBroker:
        return self.truths[moment.topic]

    def _last_offsets(self, topic: int) -> list[int]:
        return [batch.header.last_offset for segment in self.truths[topic].segments for batch in segment.batches]

    def _with_base(self, moment: Moment) -> Any:
        base = self._of(moment).segments[moment.first].base_offset
        return type("Based", (), {"topic": moment.topic, "first_base": base})


def check_of_a_moment(verb: str, partition: dict[str, Any], truth: Truth, out: Path, producer: int) -> None:
    """Checks that the findings of a verb are true of some moment."""
    if "missing_offsets" in partition:
        assert partition["missing_offsets"] in [[], *map(truth.missing, truth.moments)], partition["missing_offsets"]
    for path in out.glob("**/t-0/*.snapshot"):
        assert int(path.stem) in truth.boundaries
        assert entries_in(path.read_bytes()) in [frozenset(each.values()) for each in truth.states(int(path.stem))]
    if verb == "verify":
        assert {each["comparison"]["status"] for each in partition["snapshots"]} <= RIGHT
    elif verb == "inspect stats" and partition["segments"]:
        assert partition["totals"]["batches"] in truth.batches()
    elif verb == "inspect transactions" and partition["log_end_offset"] is not None:
        assert partition["log_end_offset"] in truth.log_ends
        found = {(each["first_offset"], each["producer_id"]) for each in partition["open"]}
        assert found in [open_in(each) for each in truth.states(partition["log_end_offset"])]
    elif verb.startswith("inspect explain") and partition["offset"] is not None:
        assert partition["offset"] in truth.log_ends
        fields = list((partition["entry"] or {}).values())[: len(ProducerEntry.__struct_fields__)]
        entry = ProducerEntry(*fields) if fields else None
        assert entry in [each.get(producer) for each in truth.states(partition["offset"])]


def open_in(entries: Entries) -> set[tuple[int, int]]:
    return {(each.current_txn_first_offset, each.producer_id) for each in entries.values() if each.current_txn_first_offset >= 0}


def test_each_verdict_is_that_of_some_moment(tmp_path: Path) -> None:
    met = {"stepped": 0, "lost": 0, "deleted": 0}
    number = iter(range(1 << 30))

    @each_seed(scaled(150))
    def check(seed: int) -> None:
        place = next(number)
        verb = sorted(VERBS)[place % len(VERBS)]
        root, out = tmp_path / f"logs-{place}", tmp_path / f"out-{place}"
        broker = BusyBroker(seed, root)
        producer, before = asked_of(broker), len(broker.moments)
        with broker.at_work(1 + place // len(VERBS) % 9):
            found, document = ran(verb, broker, out)
        context = f"{verb}, seed {seed}: {found.stdout}"
        assert found.exit_code in (0, 1), context
        assert wrong_codes(document) == [], context
        assert document["unread"] == 0, context
        met["stepped"] += len(broker.moments) - before
        met["deleted"] += len(broker.truths) > 1
        if len(broker.truths) == 1 and not broker.is_deleted and not verb.startswith("inspect explain"):
            assert [each["topic_partition"] for each in document["partitions"]] == ["t-0"], context
        for partition in document["partitions"]:
            check_of_a_moment(verb, partition, Truth(broker), out, producer)
        shutil.rmtree(root)
        shutil.rmtree(out, ignore_errors=True)

    check()
    assert met["stepped"] > 100
    assert met["deleted"]


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex"])
def test_an_upload_of_a_segment_that_is_deleted_meanwhile(suffix: str, tmp_path: Path) -> None:
    """The partition is listed again; the answer names the new log start, and no file of a deleted segment is called missing."""
    broker = BusyBroker(7, tmp_path / "logs")

    def step() -> None:
        if broker.deletions == 0:
            broker._retain()
            broker.deletions = 1

    broker.step = step  # type: ignore[method-assign]
    bases = sorted(int(log.stem) for log in broker.directory.glob("*.log"))
    (broker.root / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {bases[-1]}\n")
    name = broker._path(0, suffix).name
    with broker.at_work(1, lambda path: path.endswith(name)), pytest.raises(UploadRefusedError) as refused:
        prepare_upload(broker._path(0, ".log"), topic_id="pnG54XS0SyKCbPV6BzO-OQ", options=ReplayOptions(as_of_ms=0))
    assert broker.deletions == 1
    assert refused.value.reason == "below-log-start"
    assert f"the log start offset is {bases[1]} now" in str(refused.value)
