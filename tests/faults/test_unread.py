"""Whatever a reading verb could not read is the first line of its result, and no sentence of the result claims health."""

import errno
import json
import shutil
from pathlib import Path

import pytest
from budgets import TIER
from command import Run, snaprebuild
from every_verb import VERBS, filled, written
from log_dirs import copy_of, make_log_dir
from manifests import FIXTURES
from refused_reads import refused
from sentences import NO_START, NONE_MISSING, ONE_PATH_UNREAD

WRITING = ("before-start", "follower build", "follower repair", "install", "rebuild --plan", "rebuild in place")
WRITING += ("stage", "tier repair", "tier upload", "undo", "verify --written-by")
TOLD_ONCE = ("inspect diff", "inspect dump", "simulate isr", "simulate metadata-log")
"""They read the files that they are given, or a scenario: what cannot be read is their one error."""
READING = [name for name in VERBS if name not in (*WRITING, *TOLD_ONCE)]

HEALTH = (
    *(
        "o snapshot missing in 1 ",
        "nothing to rebuild",
        "No broker has to be repaired",
        "No snapshot is wrong",
        "nothing to repair",
    ),
    *("no violation", "all of it is proven", "no transaction"),
)

NOT_NEEDED = (".index", ".timeindex", "tier/metadata/.kafka_cleanshutdown", "tier/metadata/meta.properties")
"""Without an index more of the segment is read. The log of remote storage's metadata needs no file of its broker."""

OF_THE_VERDICT = ("leader-epoch-checkpoint", "partition.metadata", "quorum-state")
"""Evidence for a verdict on a replica: the verdict is unknown then, which is tested with the verdicts."""


def one_of_each_kind(root: Path) -> list[Path]:
    """A file of each kind in each tree, and the directory of a partition."""
    chosen: dict[tuple[str, ...], Path] = {}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        kind = ("directory", str(name.count("/"))) if path.is_dir() else (path.suffix or path.name, path.parent.name[:8])
        if not name.startswith("out") and not name.endswith(NOT_NEEDED):
            chosen.setdefault((name.split("/")[0], *kind), path)
    return list(chosen.values())


def check_says_so(ran: Run, what: str) -> None:
    assert ran.exit_code != 0, what
    if not ran.error:  # else one line of stderr is all
        assert ran.stdout.startswith("INCOMPLETE: "), f"{what}: {ran.stdout[:200]}"
        assert not [each for each in HEALTH if each in ran.stdout], f"{what}: {ran.stdout}"


@pytest.mark.parametrize("verb", READING)
def test_what_cannot_be_read_comes_first(verb: str, tmp_path: Path) -> None:
    written(VERBS[verb], tmp_path)
    met = 0
    paths = one_of_each_kind(tmp_path)
    if TIER == "quick":  # every other one, and the others with the next verb
        paths = paths[READING.index(verb) % 2 :: 2]
    for number, path in enumerate(paths):
        for out in tmp_path.glob("out*"):
            shutil.rmtree(out) if out.is_dir() else out.unlink()
        hit: list[str] = []
        arguments = filled(VERBS[verb].arguments, tmp_path)
        with refused(path, (errno.EACCES, errno.EIO)[number % 2], hit):
            ran = snaprebuild(*arguments)
        if verb == "follower check" and path.suffix in (".log", ".leader_epoch_checkpoint") and "remote" in path.parts:
            continue  # of a copy: those before it and the log on disk prove the same
        if verb == "inspect explain (snapshot)" and path == tmp_path / "log":
            continue  # the list of other partitions does not matter for one, as for `verify PARTITION`
        if hit and not (verb in ("plan", "rebuild", "cluster source", "follower check") and path.name in OF_THE_VERDICT):
            met += 1
            check_says_so(ran, f"{verb} without {path.relative_to(tmp_path)}")
    assert met


def test_a_newest_snapshot_that_cannot_be_compared_with_the_cluster(tmp_path: Path) -> None:
    verb = VERBS["cluster source"]
    written(verb, tmp_path)
    newest = max((tmp_path / "node" / "payments-0").glob("*.snapshot"))
    with refused(newest, errno.EIO, []):
        ran = snaprebuild(*filled(verb.arguments, tmp_path))
    check_says_so(ran, "cluster source without the newest snapshot")
    assert str(newest) in ran.text + ran.stderr


def test_a_partition_that_cannot_be_listed(tmp_path: Path) -> None:
    logs = copy_of("kafka27-killed", tmp_path)
    unread = logs / "k-magicup-0"
    with refused(unread, errno.EACCES, []):
        ran = snaprebuild("scan", str(logs))
        document = json.loads(snaprebuild("scan", str(logs), "--output", "json").stdout)
    assert ran.exit_code == 5
    assert ran.text.startswith(f"{ONE_PATH_UNREAD} {NONE_MISSING}the 4 partitions that were read. Up to 4 segments waiting. ")
    assert str(unread) in ran.stderr
    assert (document["unread"], document["unread_paths"], document["totals"]["missing"]) == (1, [str(unread)], 0)
    assert (document["totals"]["unread"], document["log_dirs"][0]["totals"]["unread"]) == (1, 1)
    with refused(logs, errno.EACCES, []):
        nothing = snaprebuild("scan", str(logs))
    assert nothing.exit_code == 5
    assert nothing.text.startswith(f"{ONE_PATH_UNREAD} No partition was read. Next: ")
    assert str(logs) in nothing.stderr


@pytest.mark.parametrize("verb", ["scan", "plan", "verify", "rebuild --dry-run", "inspect stats", "inspect transactions"])
def test_a_log_directory_that_is_not_there(verb: str, tmp_path: Path) -> None:
    shutil.copytree(FIXTURES / "kafka4-mixed/logs/mixed-0", tmp_path / "here/mixed-0")
    make_log_dir(tmp_path / "here")
    (tmp_path / "server.properties").write_text(f"log.dirs={tmp_path}/here,{tmp_path}/gone\n")
    ran = snaprebuild(*verb.split(), "--server-properties", str(tmp_path / "server.properties"))
    assert ran.exit_code == 5
    assert ran.stdout.startswith(f"{ONE_PATH_UNREAD}")
    assert f"{tmp_path}/gone" in ran.stderr
    assert not [each for each in HEALTH if each in ran.stdout]


@pytest.mark.parametrize(
    "name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "mixed-0/leader-epoch-checkpoint"]
)
def test_a_damaged_small_file(name: str, tmp_path: Path) -> None:
    logs = copy_of("kafka4-mixed", tmp_path)
    make_log_dir(logs)
    (logs / name).write_bytes(b"\xff garbage")
    ran = snaprebuild("scan", str(logs))
    assert ran.exit_code == 4, "a broker reports the log directory offline"
    first, text = ran.stdout.splitlines()[0], " ".join(ran.stdout.split())
    assert (
        first.startswith(ONE_PATH_UNREAD)
        or (" unread." in first and ONE_PATH_UNREAD in text)
        or f"{NO_START}malformed leader-epoch-checkpoint" in text
    )
