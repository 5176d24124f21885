"""The second line of a result is a command that runs as printed."""

import errno
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from command import Run, in_json, snaprebuild
from every_verb import VERBS, filled, written
from log_dirs import EMPTY_SNAPSHOT, copy_of, remove_snapshots, snapshot_name
from manifests import AIVEN, FIXTURES, LONG_AGO
from other_process import live_broker
from refused_reads import refused
from sentences import (
    AGAIN,
    CORRECTS_NOTHING,
    KEEP_REMOTE_STORAGE_OFF,
    NONE_MISSING,
    ONE_PATH_DAMAGED,
    ONE_PATH_UNREAD,
    ONE_PROVEN_WRONG,
    SEGMENT_REMEDY,
)

from snaprebuild.cli import view
from snaprebuild.cli.answer import answer_and_next
from snaprebuild.findings import Finding, FindingCause, Severity
from snaprebuild.shell_words import program_command

STEPS_MAX = 6


pytestmark = pytest.mark.usefixtures("own_state_home")


def next_line(ran: Run) -> str:
    """The command after ``Next:``."""
    assert ran.stdout, ran
    (line,) = [line for line in ran.stdout.splitlines() if line.startswith("Next: ")]
    return line.removeprefix("Next: ")


def advice_of(ran: Run) -> str:
    """The advice for operators before the next command; empty without any."""
    return next_line(ran).removesuffix(".") if then_line(ran) else ""


def then_line(ran: Run) -> str:
    """The command on a line of its own after an advice; empty without any."""
    return "".join(line.removeprefix("Then: ") for line in ran.stdout.splitlines() if line.startswith("Then: "))


def next_words(ran: Run) -> list[str]:
    """The words of the next command, without the name of the program; empty if there is none, ``AGAIN`` where an advice is all."""
    line = then_line(ran) or next_line(ran)
    if line == "nothing to do." or line == f"{CORRECTS_NOTHING}; see what stderr lists.":
        return []
    if not line.startswith("snaprebuild "):
        return [AGAIN]
    return shlex.split(line)[1:]


def followed(words: Sequence[str]) -> list[str]:
    """The verbs of a command and of those that come after it, as printed, until there is nothing to do or one comes again."""
    verbs: list[str] = []
    seen: set[tuple[str, ...]] = set()
    while words and words != [AGAIN] and tuple(words) not in seen and len(verbs) < STEPS_MAX:
        seen.add(tuple(words))
        is_bundled = any(word.startswith(str(FIXTURES)) for word in words)
        assert not (is_bundled and words[0] in ("rebuild", "stage", "install", "undo")), (
            f"{words}: would write into a bundled directory"
        )
        ran = snaprebuild(*words)
        assert (ran.exit_code == 2, ran.error) == (False, ""), f"{words}: {ran}"
        verbs.append(" ".join(words[: 2 if words[0] in ("tier", "follower", "cluster") else 1]))
        words = next_words(ran)
    return verbs


def test_missing(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    assert followed(["scan", str(logs), "--topic", "mixed", "--topic", "logappend"]) == ["scan", "plan", "rebuild", "verify"]
    assert snaprebuild("scan", logs).text.startswith(f"{NONE_MISSING}4 partitions.")


def test_nothing_missing() -> None:
    assert followed(["scan", str(FIXTURES / "kafka4-mixed")]) == ["scan", "verify"]


def test_incomplete(tmp_path: Path) -> None:
    """No command: the same one follows after what stderr lists was corrected."""
    logs = copy_of("kafka27-mixed", tmp_path)
    with refused(logs / "logappend-0" / "leader-epoch-checkpoint", errno.EACCES, []):
        ran = snaprebuild("scan", logs, "--topic", "logappend")
    assert ran.text.startswith(f"{ONE_PATH_UNREAD}")
    assert next_words(ran) == [AGAIN]
    assert next_words(snaprebuild("scan", logs, "--topic", "logappend"))[0] == "plan"


@pytest.mark.parametrize("severity", Severity)
def test_after_a_file_that_vanished_another_finding_is_corrected_first(severity: Severity) -> None:
    """Where anything else leaves a gap in the result, the advice is never that another run alone helps."""
    vanished = Finding("busy-log", Severity.NOTE, "/a-0", "gone", is_unread=True, cause=FindingCause.CHANGED_MEANWHILE)
    other = Finding("code", severity, "/b-0", "message")
    with click.Context(click.Command("scan"), info_name="scan"):
        _, alone = answer_and_next("", [], [vanished])
        _, both = answer_and_next("", [], [vanished, other])
    assert alone == view.RUN_AGAIN
    assert both == (view.AGAIN if severity > Severity.FINDING else view.RUN_AGAIN)


def test_blocked_for_a_reason_that_a_rebuild_does_not_remove(tmp_path: Path) -> None:
    ran = snaprebuild("scan", copy_of("magicup", tmp_path))
    assert f"{KEEP_REMOTE_STORAGE_OFF}magicup until retention deletes the segments." in ran.text
    assert followed(next_words(ran)) == ["plan", "rebuild", "verify"], "four snapshots are missing all the same"


def test_corrupt(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    snapshots = sorted((logs / "mixed-0").glob("*.snapshot"))
    snapshots[2].write_bytes(b"\0" * 30)
    assert followed(["scan", str(logs), "--topic", "mixed"])[:3] == ["scan", "verify", "plan"]
    snapshots[2].write_bytes(EMPTY_SNAPSHOT)
    ran = snaprebuild("verify", logs, "--as-of", "1795261244275")
    assert ran.text.startswith(f"{ONE_PROVEN_WRONG}.")
    assert next_words(ran) == ["plan", str(logs), "--as-of", "1795261244275", "--set-aside"]
    assert sorted(next_words(snaprebuild(*next_words(ran)))) == sorted(["rebuild", *next_words(ran)[1:]])


def test_a_name_that_something_else_has_is_for_nobody_but_a_person(tmp_path: Path) -> None:
    """A plan would refuse it. `before-start` counts the bytes that wait for it, before and after."""
    logs = copy_of("kafka4-mixed", tmp_path)
    name = logs / "mixed-0" / snapshot_name(1231)
    name.unlink()
    name.mkdir()
    for verb in ("scan", "verify", "plan", "before-start"):
        run = snaprebuild(verb, logs, *(("--dry-run",) if verb == "before-start" else ()))
        assert (run.exit_code, next_words(run)) == (1, [AGAIN]), run
    totals = in_json("before-start", logs, "--dry-run").document["totals"]
    assert totals["blocked_bytes_left"] == totals["blocked_bytes"] > 0
    (logs / "logappend-0" / snapshot_name(1175)).unlink()
    assert next_words(snaprebuild("scan", logs))[0] == "plan", "another one can be written"
    assert "1 snapshot written in 1 of 4 partitions. " in snaprebuild("rebuild", logs).text


def test_a_start_that_writes_empty_snapshots_is_more_than_nothing_to_do(tmp_path: Path) -> None:
    logs = copy_of("kafka4-compacted", tmp_path)
    assert next_words(snaprebuild("before-start", logs, "--dry-run")) == []
    remove_snapshots(logs / "compacted-0")
    run = snaprebuild("before-start", logs, "--dry-run")
    assert "the broker writes EMPTY snapshots in 1 partition, and forgets the producers." in run.text
    assert followed(next_words(run))[:2] == ["verify", "plan"]


def test_a_snapshot_above_the_log_end_is_found_by_a_scan_too(tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    snapshots = sorted((logs / "mixed-0").glob("*.snapshot"))
    shutil.copy2(snapshots[-1], logs / "mixed-0" / snapshot_name(999_999))
    (logs / "logappend-0" / snapshot_name(1175)).unlink()
    for verb in ("scan", "verify"):
        run = in_json(verb, logs)
        assert (run.exit_code, run.codes["snapshot-above-log-end"]) == (1, 1)
        shown = snaprebuild(verb, logs).stdout.partition("Next:")[0]
        assert "1 finding: mixed-0." in shown, "the missing one does not hide it"
    (logs / ".kafka_cleanshutdown").unlink()
    run = in_json("scan", logs)
    assert "snapshot-above-log-end" not in run.codes, "a broker that did not stop cleanly removes it"


def test_a_rebuild_next_to_a_corrupt_snapshot(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(b"torn")
    assert next_words(snaprebuild("rebuild", logs)) == ["verify", str(logs)]
    assert next_words(snaprebuild("verify", logs))[:1] == ["plan"]


def test_a_receipt_stays_in_the_command_after_a_dry_run(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    words = ["rebuild", str(logs), "--receipt", str(tmp_path / "receipt.jsonl")]
    assert sorted(next_words(snaprebuild(*words, "--dry-run"))) == sorted(words)
    assert "--receipt" not in next_words(snaprebuild(*words))


def test_settings_stay_in_the_next_command() -> None:
    logs = str(FIXTURES / "kafka4-mixed")
    ran = snaprebuild("scan", "--set", "max_read_rate=64MiB", logs, "--impact", "low")
    assert next_words(ran) == ["verify", logs, "--set", "max_read_rate=64MiB", "--set", "impact=low"]
    assert snaprebuild(*next_words(ran)).exit_code == 0


@pytest.mark.parametrize("verb", ["verify", "rebuild --dry-run", "stage --to {}"])
@pytest.mark.parametrize(
    ("position", "offsets"),
    [(8, "0:0"), (300, "0:0"), (19710, "200:201"), (20000, "200:201")],
    ids=["first length", "first payload", "length", "payload"],
)
def test_a_damaged_segment(verb: str, position: int, offsets: str, tmp_path: Path) -> None:
    """Another run would find the same: the next command shows the damaged batch, and no more than the one before it.

    The batch at offset 201 begins at byte 19702, as `kafka-dump-log` prints.
    """
    logs = copy_of("kafka27-mixed", tmp_path)
    segment = logs / "mixed-0" / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[position] ^= 1
    segment.write_bytes(data)
    ran = snaprebuild(*verb.format(tmp_path / "staged").split(), logs / "mixed-0")
    assert ran.exit_code == 4
    is_cut_short = position in (8, 19710)
    assert ran.text.startswith(ONE_PATH_DAMAGED) == is_cut_short
    assert SEGMENT_REMEDY in ran.stdout
    assert next_words(ran) == ["inspect", "dump", str(segment), "--offsets", offsets]
    dump = snaprebuild(*next_words(ran))
    assert dump.exit_code == 4
    first = 0 if position < 19702 else 19702
    place = f"byte {first}:" if is_cut_short else "isvalid: false"
    assert place in dump.stdout + dump.stderr
    batches = [line for line in dump.stdout.splitlines() if line.startswith("baseOffset: ")]
    assert len(batches) <= 2


def test_a_file_that_the_broker_may_not_read(tmp_path: Path) -> None:
    """Its owner or mode is wrong, not its content."""
    logs = copy_of("kafka27-mixed", tmp_path)
    path = logs / "mixed-0" / snapshot_name(7045)
    path.chmod(0)
    if os.geteuid() == 0:  # a broker that runs as root may read everything
        for each in path.parent.iterdir():
            os.chown(each, *((0, 0) if each == path else (1000, 1000)))
    run = snaprebuild("scan", logs, "--topic", "mixed")
    assert "unreadable-by-broker" in run.stderr
    assert "Next: snaprebuild inspect dump" not in run.stdout


def test_a_path_that_looks_like_an_option(tmp_path: Path) -> None:
    """The next command names it so that it runs as printed, also where it names a damaged file."""
    logs = copy_of("kafka27-mixed", tmp_path).rename(tmp_path / "-dash")
    remove_snapshots(logs / "mixed-0", 583)
    scan = next_line(snaprebuild("scan", "--", "-dash", cwd=tmp_path))
    assert scan.startswith("snaprebuild plan ./-dash")
    assert snaprebuild(*shlex.split(scan)[1:], cwd=tmp_path).exit_code in (0, 1)
    (logs / "mixed-0" / "00000000000000000000.log").write_bytes(b"torn" * 100)
    dump = next_line(snaprebuild("verify", "--", "-dash", cwd=tmp_path))
    assert dump.startswith("snaprebuild inspect dump ./-dash/mixed-0/")
    assert snaprebuild(*shlex.split(dump)[1:], cwd=tmp_path).exit_code != 2


def test_a_dry_run_and_a_saved_plan(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    ran = snaprebuild("rebuild", logs, "--dry-run", "--partition", "0", "--as-of", "2026-11-21T12:00:00Z")
    assert next_words(ran) == ["rebuild", str(logs), "--partition", "0", "--as-of", "2026-11-21T12:00:00Z"]
    assert followed(["plan", str(logs), "--save", str(tmp_path / "a plan")]) == ["plan", "rebuild", "verify"]


def test_after_a_saved_plan_the_next_command_judges_at_its_time(tmp_path: Path) -> None:
    """The command line has only the plan, so its moment and its expiration come from there."""
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = tmp_path / "plan.json"
    expiry = ["--as-of", "1795261244275", "--expiration-ms", "3600000"]
    assert snaprebuild("plan", logs, *expiry, "--save", plan).exit_code == 0
    (logs / "mixed-0" / snapshot_name(7045)).write_bytes(EMPTY_SNAPSHOT)
    assert snaprebuild("plan", logs, *expiry, "--save", plan).exit_code == 1
    assert next_words(snaprebuild("rebuild", "--plan", plan, "--dry-run")) == ["verify", str(logs), *expiry]


@pytest.mark.parametrize("boundaries", ["missing", "all"])
def test_a_saved_plan_where_a_broker_holds_the_log_directory(boundaries: str, tmp_path: Path) -> None:
    """`stage` takes no plan of `rebuild`, so the next command has the words of its request."""
    logs = copy_of("kafka27-mixed", tmp_path)
    plan = tmp_path / "plan.json"
    options = [
        "--boundaries",
        boundaries,
        "--offsets",
        "583:7637",
        "--replay-from",
        "log-start",
        "--crc",
        "skip",
        "--topic",
        "mixed",
    ]
    assert snaprebuild("plan", logs, "--save", plan, *options).exit_code == 0
    with live_broker(logs):
        words = next_words(snaprebuild("rebuild", "--plan", plan))
        assert next_words(snaprebuild("rebuild", logs, *options)) == words
        staged = in_json(*words)
        (place,) = (logs.parent / "snaprebuild-staged").glob("mixed-0*")
    assert words[:2] == ["stage", str(logs)]
    assert words[-2:] == ["--to", str(place.parent)]
    assert {"583:7637", "log-start", "skip", "mixed"} <= set(words)
    assert staged.exit_code == 0
    offsets = {int(path.name.split(".")[0]) for path in place.glob("*.snapshot")}
    assert offsets
    assert min(offsets) >= 583
    assert max(offsets) <= 7637


def test_the_way_around_the_lock_names_only_what_a_broker_holds(tmp_path: Path) -> None:
    held = copy_of("kafka4-mixed", tmp_path / "a b")
    free = copy_of("kafka4-mixed", tmp_path / "free")
    (held / "mixed-0" / snapshot_name(4142)).unlink()
    with live_broker(held):
        ran = snaprebuild("rebuild", held, free, "--partition", "0", "--offsets", "4142:4142")
        (line,) = [line for line in ran.stdout.splitlines() if "Broker 2.8 or newer?" in line] or [ran.text]
        words = shlex.split(line.partition("snaprebuild ")[2])
        assert words == ["rebuild", str(held), "--partition", "0", "--broker-running"]
        assert snaprebuild(*words).exit_code == 0
    assert (held / "mixed-0" / snapshot_name(4142)).exists()


def test_files_elsewhere_that_are_all_there_next_to_a_suspect_snapshot(tmp_path: Path) -> None:
    """A command corrects the suspect snapshot in the log directory."""
    logs = copy_of("kafka27-mixed", tmp_path)
    (logs / "mixed-0" / snapshot_name(7637)).write_bytes(EMPTY_SNAPSHOT)
    words = ("rebuild", logs, "--out", tmp_path / "out", "--kafka-release", "3.9.2")
    snaprebuild(*words)
    again = snaprebuild(*words)
    assert next_words(again) == ["verify", str(logs), "--kafka-release", "3.9.2"], again
    assert "--set-aside" in next_words(snaprebuild(*next_words(again)))


@pytest.mark.parametrize("name", [b"a\nb", b"caf\xe9 'x'", b"a\\b\x1b[31m", "é ü".encode(), b"$HOME"])
def test_a_shell_finds_each_path(name: bytes, tmp_path: Path) -> None:
    """The printed line does nothing to a terminal, and bash makes the same bytes of it."""
    path = os.path.join(os.fsencode(tmp_path), name)
    text = program_command(["scan", os.fsdecode(path)])
    assert text.isprintable()
    script = f"snaprebuild() {{ printf '%s\\0' \"$@\"; }}; {text}"
    printed = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    assert printed == b"scan\0" + path + b"\0"


def test_half_of_a_character_is_an_escape_too() -> None:
    """A JSON document of another program can hold it, and the page shows the next command of its partitions."""
    assert program_command(["scan", "/logs/\ud800-0"]) == r"snaprebuild scan $'/logs/\xed\xa0\x80-0'"


def test_undo(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    snaprebuild("rebuild", logs)
    assert followed(["undo"]) == ["undo", "undo", "undo", "scan", "plan", "rebuild"], "the list, a dry run, and the undo"


@pytest.mark.parametrize("is_kept", [True, False], ids=["the file is there", "the file is gone"])
def test_undo_follows_the_configuration_of_its_run(is_kept: bool, tmp_path: Path) -> None:
    """Without it the scan would judge the next start by other settings than the run did."""
    logs = copy_of("kafka27-mixed", tmp_path)
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={logs}\nzookeeper.connect=localhost:2181\ninter.broker.protocol.version=2.7\n")
    receipt = tmp_path / "receipt.jsonl"
    options = ("--server-properties", properties, "--kafka-release", "3.9.1")
    assert snaprebuild("rebuild", *options, "--receipt", receipt).exit_code == 0
    (logs / "mixed-0" / snapshot_name(583)).unlink()
    if not is_kept:
        properties.unlink()
    configuration = ["--server-properties", str(properties)] if is_kept else []
    scan = ["scan", str(logs), *configuration, "--kafka-release", "3.9.1"]
    for words in (("verify", "--written-by"), ("undo",)):
        run = snaprebuild(*words, receipt)
        assert next_words(run) == scan, run
        assert snaprebuild(*scan).exit_code in (0, 1)


def test_install_that_refuses(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    snaprebuild("stage", logs, "--to", tmp_path / "staged")
    (tmp_path / "staged" / "mixed-0.staged" / snapshot_name(583)).write_bytes(EMPTY_SNAPSHOT)
    ran = snaprebuild("install", "--plan", tmp_path / "staged" / "plan.jsonl")
    assert next_words(ran)[0] == "stage"
    assert snaprebuild(*next_words(ran)).exit_code in (0, 1)


@pytest.mark.parametrize(
    ("verb", "verbs"),
    [
        ("tier audit", ["tier audit"]),
        ("tier repair", ["tier repair", "tier audit"]),
        ("tier upload", ["tier upload", "tier audit"]),
        ("follower check", ["follower check", "follower repair", "follower repair"]),
        ("follower repair", ["follower repair", "follower check"]),
        ("fleet", ["fleet", "plan", "rebuild"]),
    ],
)
def test_other_verbs(verb: str, verbs: list[str], tmp_path: Path) -> None:
    written(VERBS[verb], tmp_path)
    if verb == "fleet":
        remove_snapshots(tmp_path / "log" / "payments-0", 116)
        remove_snapshots(tmp_path / "other" / "payments-0", 116)
        for name, document in (("log", "scan"), ("other", "other")):
            snaprebuild("scan", tmp_path / name, "--save-json", tmp_path / f"{document}.json")
    found = followed(filled(VERBS[verb].arguments, tmp_path))
    assert found[: len(verbs)] == verbs


def proposals(words: Sequence[str], ran: Run) -> None:
    """Follows what a command proposes to its end: each command runs, none is proposed twice, and none refuses."""
    seen = [list(words)]
    while "\nNext: " in f"\n{ran.stdout}":
        following = next_words(ran)
        if not following or following == [AGAIN]:
            return
        if seen[-1][:2] == ["follower", "repair"] and "--dry-run" not in seen[-1]:
            seen.clear()  # what it has written is checked
        assert following not in seen, f"{seen} leads back to {following}"
        assert len(seen) <= STEPS_MAX, seen
        seen.append(following)
        ran = snaprebuild(*following)
        assert ran.exit_code not in (2, 3), (following, ran)


@pytest.mark.parametrize("verb", VERBS)
def test_what_each_verb_proposes(verb: str, tmp_path: Path) -> None:
    written(VERBS[verb], tmp_path)
    words = filled(VERBS[verb].arguments, tmp_path)
    proposals(words, snaprebuild(*words))


DAMAGED = FIXTURES / "damaged"
JUDGED = {
    "tier audit": ("tier", "audit", "{}/false-empty-copy"),
    "tier audit, snapshots only": ("tier", "audit", "{}/false-empty-copy", "--level", "structure"),
    "tier audit, an object is lost": ("tier", "audit", "{}/lost-object"),
    "tier repair": ("tier", "repair", "{}/false-empty-copy", "--dry-run"),
    "tier inventory": ("tier", "inventory", "{}/unknown-copy"),
    "tier inventory, an object is lost": ("tier", "inventory", "{}/lost-object"),
    "tier inventory, an upload that never began": ("tier", "inventory", "{}/phantom-upload"),
    "cluster isr": ("cluster", "isr", "{}/node1"),
    "follower check": ("follower", "check", "{}/remote", "{}/node2"),
    "follower plan": ("follower", "plan", "{}/remote", "{}/node1"),
    "cluster check": ("cluster", "check", "{}/metadata-gap"),
    "cluster source": ("cluster", "source", "{}/foreign-topic"),
    "inspect transactions": ("inspect", "transactions", "{}/hanging-transaction"),
    "inspect explain": ("inspect", "explain", "{}/stale", "--producer-id", "1"),
    "inspect transactions, no such topic": ("inspect", "transactions", "{}/stale", "--topic", "nope"),
    "fleet": ("fleet", "{}/scan.json"),
}


@pytest.mark.parametrize("name", JUDGED)
def test_what_is_proposed_about_damage(name: str, tmp_path: Path) -> None:
    """Every other command that judges proposes a next command over a directory with a fault."""
    words = [word.replace("{}", str(tmp_path)) for word in JUDGED[name]]
    places = [FIXTURES / "kraft-cluster3"] if name == "cluster isr" else [DAMAGED, FIXTURES / "follower-lost-state"]
    for path in (Path(word) for word in JUDGED[name] if word.startswith("{}/")):
        for place in places:
            if (place / path.name).is_dir():
                shutil.copytree(place / path.name, tmp_path / path.name)
    if name == "fleet":
        logs = Path(shutil.copytree(DAMAGED / "stale", tmp_path / "stale"))
        snaprebuild("scan", logs, "--save-json", tmp_path / "scan.json")
    ran = snaprebuild(*words)
    assert not ran.error, ran
    proposals(words, ran)


@pytest.mark.parametrize("verb", ["tier inventory", "tier audit"])
@pytest.mark.parametrize("is_configured", [True, False])
def test_the_next_command_reads_the_same_store_and_the_same_ledger(verb: str, is_configured: bool, tmp_path: Path) -> None:
    """Down to the audit after the repair: no step reads what an earlier one has proven, and none lacks the store."""
    store = shutil.copytree(AIVEN / "diseased" / "store", tmp_path / "store")
    source = [str(store)]
    if is_configured:
        properties = tmp_path / "server.properties"
        backend = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
        properties.write_text(
            "node.id=1\nremote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager\n"
            f"rsm.config.storage.backend.class={backend}\nrsm.config.storage.root={store}\n"
        )
        source = ["--server-properties", str(properties)]
    ledger = ["--ledger", str(tmp_path / "audit.ledger")] if verb == "tier audit" else []
    words = [*verb.split(), *source, *LONG_AGO, *ledger]
    steps = []
    while words:
        steps.append(" ".join(words[:2]))
        assert len(steps) <= STEPS_MAX, steps
        ran = snaprebuild(*words)
        assert ran.exit_code in (0, 1), (words, ran)
        words = next_words(ran)
        given = " ".join(words)
        assert not words or (" ".join(source) in given and " ".join(ledger) in given), given
    assert steps[-3:] == ["tier repair", "tier repair", "tier audit"]


ONLY_SHOWS = ("follower offsets", "cluster image", "cluster history", "cluster advise")
"""These list what is there, and judge nothing."""


@pytest.mark.parametrize(
    "verb", [verb for verb in VERBS if verb.split()[0] in ("tier", "follower", "cluster") and not verb.endswith("--keys")]
)
def test_each_verb_that_judges_has_an_answer(verb: str, tmp_path: Path) -> None:
    """Its first line is the answer and the next one says what comes next, in the table and in the document."""
    written(VERBS[verb], tmp_path)
    words = filled(VERBS[verb].arguments, tmp_path)
    name = " ".join(verb.split()[:2])
    if words[:2] in (["tier", "repair"], ["tier", "upload"], ["follower", "repair"], ["follower", "build"]):
        words.append("--dry-run")
    run = snaprebuild(*words)
    if "--records-file" in words:
        Path(words[-1]).unlink()  # it is never replaced
    document = in_json(*words).document
    if name in ONLY_SHOWS:
        assert document["answer"] is None
        return
    lines = run.stdout.splitlines()
    assert lines[0]
    assert document["answer"].split()[0] == lines[0].split()[0]
    assert next_line(run)
    assert next_words(run) != words
