"""``follower build`` on bundled remote storage: what it makes is what the leader has, and nothing is made twice or in part."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from budgets import first_of
from command import Run, in_json, snaprebuild
from log_dirs import EMPTY_SNAPSHOT, changes, entries_in, files_below, flip, make_log_dir, snapshot_name, tree
from manifests import AIVEN, FIXTURES, READS, REPOSITORY
from other_process import live_broker
from schema_validator import Draft202012Validator
from sentences import HELD_BY_PROCESS, NO_FINISHED_COPY, NO_FINISHED_SEGMENT

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.errors import RefusedError
from snaprebuild.followers.build import BuildRequest, build_follower, plan_build
from snaprebuild.replay.classes import Judgement, SnapshotClass
from snaprebuild.replay.window import Clock
from snaprebuild.snapshots import run as runs
from snaprebuild.snapshots.receipts.directory_receipt import FOLLOWER_FORM, DirectoryReceipt
from snaprebuild.storage.local.store import LOCAL
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.remote_store import StoreAccess, open_tier

TIERED = FIXTURES / "tiered-local"
KEY = ("--set", f"private_key={AIVEN / 'keys' / 'key1.private.pem'}")
NOW = ("--as-of", "2026-11-21T12:00:00Z")
METADATA = ("--metadata-log", TIERED / "logs")
FILES = {"{}.log", "{}.index", "{}.timeindex", "{}.snapshot", "leader-epoch-checkpoint", "partition.metadata"}


pytestmark = pytest.mark.usefixtures("own_state_home")


def build(store: Path, to: Path, partition: str, *arguments: object) -> Run:
    to.mkdir(exist_ok=True)
    return in_json("follower build", store, to, "--topic-partition", partition, *NOW, *arguments)


@pytest.mark.parametrize("metadata", [(), METADATA], ids=["bucket", "metadata"])
def test_the_end_of_remote_storage(tmp_path: Path, metadata: tuple[object, ...]) -> None:
    """Byte for byte what the leader has at that offset."""
    manifest = json.loads((TIERED / "manifest.json").read_text())
    run = build(TIERED / "remote", tmp_path / "new", "mixed-0", *metadata)
    end = manifest["highest_remote_offset"] + 1
    assert (run.exit_code, run.document["next_offset"], run.document["local_log_start_offset"]) == (0, end, end)
    assert (run.document["log_start_offset"], run.document["verified"]) == (0, bool(metadata))
    remote = run.document["remote"]
    assert (remote["verdict"], remote["class"], remote["entries_source"]) == ("right", "EXACT", "remote-snapshot")
    made, leader = tmp_path / "new" / "mixed-0", TIERED / "logs" / "mixed-0"
    assert files_below(tmp_path / "new") == {f"mixed-0/{name.format(f'{end:020d}')}" for name in FILES}
    assert (made / snapshot_name(end)).read_bytes() == (leader / snapshot_name(end)).read_bytes()
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        assert (made / name).read_bytes() == (leader / name).read_bytes()
    assert [(made / f"{end:020d}{suffix}").read_bytes() for suffix in (".log", ".index", ".timeindex")] == [b"", b"", b""]
    line = {"topic": "mixed", "partition": 0, "topic_partition": "mixed-0"}
    assert run.document["checkpoint_lines"]["log-start-offset-checkpoint"] == {**line, "offset": 0}


def test_undo_removes_a_follower_that_no_broker_has_used(tmp_path: Path) -> None:
    """Whether the directory is a broker's, whose lock is held meanwhile, or a new one, which gets no lock file."""
    broker = make_log_dir(tmp_path / "broker")
    (tmp_path / "new").mkdir()
    for log_dir in (broker, tmp_path / "new"):
        before = tree(log_dir).keys()
        assert build(TIERED / "remote", log_dir, "mixed-0", "--dry-run").document["receipt"] is None
        run = build(TIERED / "remote", log_dir, "mixed-0")
        receipt = run.document["receipt"]
        written = tree(log_dir)
        schema = json.loads((REPOSITORY / "docs" / "schema" / "follower-undo.schema.json").read_text())
        for line in Path(receipt).read_text().splitlines():
            assert not list(Draft202012Validator(schema).iter_errors(json.loads(line))), line
        listed = {each["path"]: each["command"] for each in in_json("undo").document["receipts"]}
        assert listed[receipt] == "snaprebuild follower build"
        shown = snaprebuild("undo", receipt, "--dry-run")
        assert "Dry run: nothing was changed. 1 directory: 1 would-remove." in shown.text
        assert tree(log_dir).keys() == written.keys()
        (log_dir / "mixed-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
        left = in_json("undo", receipt)
        assert (left.exit_code, left.document["directories"][0]["action"]) == (1, "left"), "a broker has used it"
        shutil.rmtree(log_dir / "mixed-0")
        again = build(TIERED / "remote", log_dir, "mixed-0")
        left = in_json("undo", receipt)
        assert (left.exit_code, left.document["directories"][0]["action"]) == (1, "left"), "a later run has written it"
        assert in_json("undo", "--last", "--dry-run").document["receipt"] == again.document["receipt"]
        last = snaprebuild("undo", "--last")
        assert "`follower build`" in last.text
        assert "Next: remove the lines of this partition from the checkpoints, if you have merged them." in last.text
        assert tree(log_dir).keys() - {".lock"} == before - {".lock"}
        assert (".lock" in tree(log_dir)) == (log_dir == broker)
        assert in_json("undo", receipt).document["directories"][0]["action"] == "absent"


@pytest.mark.parametrize("change", ["link", "another file", "younger index"])
def test_undo_leaves_a_follower_that_was_changed(tmp_path: Path, change: str) -> None:
    """A broker that loads the directory and stops leaves all bytes as they are, but trims the indexes."""
    receipt = build(TIERED / "remote", tmp_path / "new", "mixed-0").document["receipt"]
    made = tmp_path / "new" / "mixed-0"
    if change == "link":
        made.symlink_to(made.rename(tmp_path / "elsewhere"))
    elif change == "another file":
        (made / "notes.txt").touch()
    else:
        (index,) = made.glob("*.index")
        os.utime(index, ns=(0, made.stat().st_mtime_ns + 1))
    before = tree(tmp_path)
    for more in (("--dry-run",), ()):
        left = in_json("undo", receipt, *more)
        assert (left.exit_code, left.document["directories"][0]["action"]) == (1, "left")
    assert tree(tmp_path) == before


def test_undo_waits_for_the_broker_to_stop(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "broker")
    receipt = build(TIERED / "remote", log_dir, "mixed-0").document["receipt"]
    with live_broker(log_dir):
        for more in ((), ("--dry-run",)):
            run = in_json("undo", receipt, *more)
            assert (run.exit_code, run.document["directories"][0]["action"]) == (3, "refused")
    assert in_json("undo", receipt).document["directories"][0]["action"] == "removed"


def test_a_follower_with_cut_leader_epochs_is_never_made(tmp_path: Path) -> None:
    """The newest copy is of a leader whose first epochs were gone: leading, the follower would delete the copies below."""
    remote = Path(shutil.copytree(TIERED / "remote", tmp_path / "remote"))
    newest = max(remote.rglob("*.leader_epoch_checkpoint"))
    first = int(newest.name.partition("-")[0])
    newest.write_text(f"0\n1\n0 {first}\n")
    for log_start in (0, first - 1):
        run = build(remote, tmp_path / "new", "mixed-0", "--assume", f"log_start={log_start}", "--dry-run")
        assert run.exit_code == 3
        assert f"begin with 0 from {first}, above the log start {log_start}: if this follower led" in run.stderr
    above = build(remote, tmp_path / "new", "mixed-0", "--assume", f"log_start={first}", "--dry-run", "--allow-unproven")
    assert (above.exit_code, "bootstrap-unproven" in above.codes) == (1, True), "nothing is below the log start"
    assert build(TIERED / "remote", tmp_path / "new", "mixed-0", "--assume", "log_start=0", "--dry-run").exit_code == 0


@pytest.mark.parametrize("name", first_of(["diseased-zstd", "epochs", "encrypted"]))
def test_every_copy_that_follows_from_the_first_offset(tmp_path: Path, name: str) -> None:
    """Also where its snapshot is wrong: by the right entries, which Kafka's own classes gave."""
    variant = READS["variants"][name]
    tried = 0
    for segment in sorted(variant["segments"], key=lambda each: each["metadata"]["start_offset"]):
        reported = segment["metadata"]
        key = KEY if "encrypted" in name else ()
        place, end = tmp_path / reported["segment_id"], reported["end_offset"] + 1
        partition = f"{reported['topic']}-{reported['partition']}"
        run = build(
            AIVEN / variant["store"],
            place,
            partition,
            "--target",
            end,
            "--topic-id",
            f"{reported['topic']}={reported['topic_id']}",
            *key,
        )
        if run.exit_code != 0:
            # Its partition does not begin at offset 0.
            assert (run.exit_code, "are UNPROVEN: " in run.stderr, place.exists() and os.listdir(place)) == (3, True, [])
            continue
        tried += 1
        assert run.document["remote"]["entries_source"] == ("remote-snapshot" if segment["disease"] is None else "rebuilt")
        made = place / partition
        assert entries_in((made / snapshot_name(end)).read_bytes()) == frozenset(
            ProducerEntry(**entry) for entry in segment["right_snapshot"]["entries"]
        )
        assert (made / "leader-epoch-checkpoint").read_text() == segment["leader_epoch_text"]
        assert (made / "partition.metadata").read_text() == f"version: 0\ntopic_id: {reported['topic_id']}"
    assert tried >= (0 if name == "encrypted" else 2)


def test_a_snapshot_that_nothing_replaces_is_refused(tmp_path: Path) -> None:
    """It is wrong, and a copy below it is damaged, so that nothing shows what is right."""
    shutil.copytree(AIVEN / "diseased" / "store", tmp_path / "store")
    (log,) = (tmp_path / "store").rglob("mixed-*/0/00000000000000000000-*.log")
    flip(log, 40_000)
    (tmp_path / "new").mkdir()
    arguments = ("follower", "build", tmp_path / "store", tmp_path / "new", "--topic-partition", "mixed-0", *NOW)
    run = snaprebuild(*arguments, "--target", 1231)
    assert (run.exit_code, "is false-empty" in run.stderr or "is unknown" in run.stderr) == (3, True)
    zero = snaprebuild(*arguments, "--target", 1805, "--proof", "snapshot")
    assert (zero.exit_code, "is zero-bytes" in zero.stderr) == (3, True)
    assert os.listdir(tmp_path / "new") == []


def test_a_snapshot_as_it_is(tmp_path: Path) -> None:
    """Nothing proves it: it is written when asked for."""
    for more in ((), ("--dry-run",)):
        refused = build(TIERED / "remote", tmp_path / "new", "mixed-0", "--proof", "snapshot", *more)
        assert (refused.exit_code, "are UNPROVEN: the segments were not replayed" in refused.stderr) == (3, True)
    assert os.listdir(tmp_path / "new") == []
    run = build(TIERED / "remote", tmp_path / "new", "mixed-0", "--proof", "snapshot", "--allow-unproven")
    assert (run.exit_code, run.codes["bootstrap-unproven"]) == (1, 1)
    assert (run.document["remote"]["class"], run.document["remote"]["read_bytes"]) == ("UNPROVEN", 0)
    assert (tmp_path / "new" / "mixed-0").is_dir()


def test_what_is_unsound_is_never_written(tmp_path: Path) -> None:
    tier = open_tier(StoreAccess(StorePath(LOCAL, str(TIERED / "remote"))))
    plan = plan_build(tier, BuildRequest("mixed", 0), runs.Run(clock=Clock(1_795_269_600_000, 86_400_000)), replays=False)
    unsound = replace(plan, state=replace(plan.state, judgement=Judgement(SnapshotClass.UNSOUND, ("there is a gap",))))
    receipt = DirectoryReceipt(str(tmp_path / "receipt.jsonl"), FOLLOWER_FORM)
    with pytest.raises(RefusedError, match="are UNSOUND: there is a gap"):
        build_follower(unsound, str(tmp_path), receipt=receipt, allow_unproven=True)
    assert os.listdir(tmp_path) == []


FOLLOWER = FIXTURES / "follower-lost-state"


@pytest.mark.parametrize("overlapping", [False, True], ids=["hole", "overlap"])
def test_a_hole_is_no_log_start(tmp_path: Path, overlapping: bool) -> None:
    """Who wrote below it would be deleted for it: the leader's log start has to be named."""
    remote = shutil.copytree(FOLLOWER / "remote", tmp_path / "remote")
    if overlapping:  # 116 to 234 in one copy, 173 to 234 in another
        (log,), (upper,) = remote.rglob(f"{116:020d}-*.log"), remote.rglob(f"{173:020d}-*.log")
        log.write_bytes(log.read_bytes() + upper.read_bytes())
    else:
        for path in remote.rglob(f"{173:020d}-*"):
            path.unlink()
    (tmp_path / "new").mkdir()
    run = snaprebuild("follower", "build", remote, tmp_path / "new", "--topic-partition", "payments-0", *NOW)
    why = "the copy that holds 172 overlaps the next one" if overlapping else f"{NO_FINISHED_COPY}234"
    assert (run.exit_code, "others begin at 0" in run.stderr, why in run.stderr) == (3, True, True), run.stderr
    assert os.listdir(tmp_path / "new") == []
    named = build(remote, tmp_path / "new", "payments-0", "--assume", "log_start=0", "--allow-unproven")
    assert named.document["log_start_offset"] == 0
    assert any(why in each for each in named.document["warnings"])


def test_what_has_expired_need_not_be_there(tmp_path: Path) -> None:
    """An empty snapshot does, years later: a broker drops all producers when it loads it, but for those with open transactions."""
    later = ("--as-of", "2030-01-01", "--target")
    remote = shutil.copytree(FIXTURES / "follower-lost-state" / "remote", tmp_path / "remote")
    (snapshot,) = remote.rglob("00000000000000000508-*.snapshot")
    snapshot.write_bytes(EMPTY_SNAPSHOT)
    run = build(remote, tmp_path / "new", "payments-0", *later, 561)
    reported = run.document["remote"]
    assert (reported["verdict"], reported["entries_source"], reported["class"]) == ("right", "remote-snapshot", "LOAD_EQUIVALENT")
    run = build(AIVEN / "diseased" / "store", tmp_path / "open", "mixed-0", *later, 1231)
    reported = run.document["remote"]
    assert (reported["verdict"], reported["entries_source"], reported["class"]) == ("false-empty", "rebuilt", "EXACT")
    assert reported["open_transactions"] > 0


def test_what_exists_is_refused(tmp_path: Path) -> None:
    assert build(TIERED / "remote", tmp_path / "new", "mixed-0").exit_code == 0
    before = tree(tmp_path)
    again = snaprebuild("follower", "build", TIERED / "remote", tmp_path / "new", "--topic-partition", "mixed-0")
    assert (again.exit_code, "is there already: the follower is not empty" in again.stderr) == (3, True)
    inside = snaprebuild("follower", "build", TIERED / "remote", tmp_path / "new" / "mixed-0", "--topic-partition", "mixed-0")
    assert (inside.exit_code, "is the directory of a partition" in inside.stderr) == (3, True)
    assert tree(tmp_path) == before


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_partition_in_another_log_dir_is_refused(tmp_path: Path, more: tuple[str, ...]) -> None:
    """A broker does not start with one in two."""
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    (second / "mixed-0").mkdir(parents=True)
    first.mkdir()
    (tmp_path / "broker.properties").write_text(f"log.dirs={first}, {second}, {third}\n")
    named = ("--server-properties", tmp_path / "broker.properties", *more)
    run = build(TIERED / "remote", first, "mixed-0", *named)
    assert (run.exit_code, f"{second}/mixed-0: is there already, and a broker does not start" in run.stderr) == (3, True), (
        run.stderr
    )
    (second / "mixed-0").rmdir()
    run = build(TIERED / "remote", first, "mixed-0", *named)
    assert (run.exit_code, "whether it has mixed-0 is not known" in run.stderr) == (3, True), run.stderr
    third.mkdir()
    other = build(TIERED / "remote", tmp_path / "fourth", "mixed-0", *named)
    assert (other.exit_code, "is not one of the log.dirs of the broker" in other.stderr) == (2, True)
    assert [os.listdir(each) for each in (first, second, third, tmp_path / "fourth")] == [[], [], [], []]
    assert build(TIERED / "remote", first, "mixed-0", *named).exit_code == 0
    assert os.listdir(first) == ([] if more else ["mixed-0"])


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    dry = build(TIERED / "remote", tmp_path / "new", "mixed-0", "--dry-run")
    assert (dry.exit_code, os.listdir(tmp_path / "new")) == (0, [])
    wet = build(TIERED / "remote", tmp_path / "new", "mixed-0")
    assert dry.document["answer"] == f"Dry run: nothing was written. {wet.document['answer']}"
    own = ("dry_run", "answer", "next_command", "receipt")
    assert {name: value for name, value in dry.document.items() if name not in own} == {
        name: value for name, value in wet.document.items() if name not in own
    }
    assert "--dry-run" not in dry.document["next_command"]
    made = tmp_path / "new" / "mixed-0"
    assert {each["name"]: each["size_bytes"] for each in dry.document["files"]} == {
        path.name: path.stat().st_size for path in made.iterdir()
    }


def test_a_target_beyond_remote_storage(tmp_path: Path) -> None:
    run = snaprebuild("follower", "build", TIERED / "remote", tmp_path, "--topic-partition", "mixed-0", "--target", 6391)
    assert (run.exit_code, f"{NO_FINISHED_SEGMENT}6390 of leader epoch 0" in run.stderr) == (3, True)


# ---------------------------------------------------------------------------------------------------------------- next to a broker


def test_files_of_the_broker_are_not_touched(tmp_path: Path) -> None:
    """The lines are reported; once they are there nothing is missing, and nothing is wrong."""
    log_dir = make_log_dir(tmp_path / "logs", recovery_points={"other-3": 7})
    before = tree(log_dir)
    run = build(TIERED / "remote", log_dir, "mixed-0", "--assume", "log_start=5")
    assert run.exit_code == 0
    added, gone, changed = changes(before, tree(log_dir))
    assert ({name.split("/")[0] for name in added}, gone, changed - {""}) == (
        {"mixed-0", ".lock"} & {*os.listdir(log_dir)},
        set(),
        set(),
    )
    offsets = {name: each["offset"] for name, each in run.document["checkpoint_lines"].items()}
    assert offsets == {
        "log-start-offset-checkpoint": 5,
        "recovery-point-offset-checkpoint": 6390,
        "replication-offset-checkpoint": 6390,
    }
    (log_dir / "log-start-offset-checkpoint").write_text("0\n1\nmixed 0 5\n")
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n2\nother 3 7\nmixed 0 6390\n")
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nmixed 0 6390\n")
    assert snaprebuild("scan", log_dir).exit_code == 0
    assert in_json("follower check", TIERED / "remote", log_dir, *NOW).document["totals"]["intact"] == 1


def test_a_live_broker_is_left_alone(tmp_path: Path) -> None:
    log_dir = make_log_dir(tmp_path / "logs")
    with live_broker(log_dir):
        before = tree(log_dir)
        for more in (("--dry-run",), ()):
            run = snaprebuild("follower", "build", TIERED / "remote", log_dir, "--topic-partition", "mixed-0", *more)
            assert (run.exit_code, HELD_BY_PROCESS in run.stderr) == (3, True)
        assert tree(log_dir) == before
