"""The writers of the command, each run for real once under strace, and what a power failure at any call of it may leave.

In each state nothing that was there is lost or changed, and no file has its real name with other bytes than its own. What was reported done
survives, and a run that is started again finishes with the same files. `scripts/faults/crash_matrix.py` prints the figures of all states.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from command import in_json, snaprebuild
from crash_model import Content
from log_dirs import of_zookeeper, remove_snapshots
from manifests import FIXTURES, LONG_AGO
from traced_run import Change, traced
from tree_model import File, Folder, Tree, TreeDisk, build_tree, key_of, read_tree

AS_OF = ("--as-of", "1795266500000")
REMOTE = FIXTURES / "follower-lost-state" / "remote"
IN_MEMORY = Path("/dev/shm")
PROGRAM_FILES = re.compile(r"(^|/)\.lock$")
TEMPORARY = re.compile(r"\.tmp$|\.snaprebuild-tmp$|\.[0-9a-f]{32}-delete(/|$)|(^|/)\.[^/]+-[a-z0-9_]{8}$")
RANDOM_STATES = 8
"""Random subsets at each call, in addition to the systematic ones."""
Record = Callable[[Sequence[str], Path, Path, Sequence[int]], list[Change]]
"""Runs the command and returns the calls that changed the tree: its arguments, the root, a place for receipts, the right exit codes."""
AGAIN_NAME = re.compile(r"(^|/)again-\d+\.jsonl$")


@dataclass(frozen=True)
class Writer:
    """A verb that writes.

    Attributes:
        prepare: makes the tree that it works on.
        arguments: of the command; ``{}`` is replaced by the root.
        again: those of the run after the failure; as ``arguments`` where not given. ``{again}`` is a name that is free.
        journals: paths that grow line by line, and are read so.
        receipt: lists each file before the file has its name; none where empty.
        is_replacing: a file may have its old or its new bytes.
        is_elsewhere: another run writes to another place.
        is_removing: a file that was there may be gone, if it is gone at the end.
        timed: paths whose bytes have the moment of the run.
        faults_at_end: what is wrong with the root after the second run, besides that its files are not those of the first.
        codes: exit codes of the first run; ``codes_again`` of the second.
    """

    prepare: Callable[[Path], None]
    arguments: tuple[str, ...]
    again: tuple[str, ...] = ()
    journals: str = "$^"
    receipt: str = ""
    is_replacing: bool = False
    is_removing: bool = False
    is_elsewhere: bool = False
    timed: str = "$^"
    faults_at_end: Callable[[Path], list[str]] = lambda _: []
    codes: tuple[int, ...] = (0,)
    codes_again: tuple[int, ...] = (0,)


def bare_log(root: Path) -> None:
    shutil.copytree(FIXTURES / "damaged" / "healthy" / "log", root / "logs")
    remove_snapshots(root / "logs" / "payments-0")


def whole_log(root: Path) -> None:
    of_zookeeper(Path(shutil.copytree(FIXTURES / "damaged" / "healthy" / "log", root / "logs")))
    (root / "store").mkdir()


def false_empty(root: Path) -> None:
    shutil.copytree(FIXTURES / "damaged" / "false-empty", root / "logs")


def rebuilt_log(root: Path) -> None:
    bare_log(root)
    assert snaprebuild("rebuild", f"{root}/logs", *AS_OF, "--jobs", "1", "--receipt", f"{root}/receipt.jsonl").exit_code == 0


def staged_log(root: Path) -> None:
    bare_log(root)
    assert snaprebuild("stage", f"{root}/logs", *AS_OF, "--jobs", "1", "--to", f"{root}/staged").exit_code == 0


def lost_follower(root: Path) -> None:
    shutil.copytree(FIXTURES / "follower-lost-state" / "node2", root / "node")


def diseased_store(root: Path) -> None:
    shutil.copytree(FIXTURES / "aiven-layout" / "diseased" / "store", root / "store")


def lost_metadata(root: Path) -> None:
    """The leader of the copies in ``REMOTE``, stopped, whose ``__remote_log_metadata`` is gone."""
    shutil.copytree(FIXTURES / "follower-lost-state" / "node1", root / "node")
    shutil.rmtree(root / "node" / "__remote_log_metadata-0")


def unequal_records(root: Path) -> list[str]:
    """Where records and objects differ: each copy of the leader has its records, and they are those of its objects."""
    run = in_json("tier metadata", REMOTE, "--metadata-log", f"{root}/node", "--log-dir", f"{root}/node")
    found = (run.exit_code, run.document["verified"], run.document["totals"]["included"])
    return [] if found == (0, True, REMOTE_COPIES) else [f"the records are {found}"]


def read_ledger(root: Path) -> None:
    """A ledger of all copies of a store, most of which retention deletes then."""
    store = shutil.copytree(TIERED, root / "store")
    assert snaprebuild(*filled(AUDIT, root)).exit_code == 0
    for path in store.rglob("0*"):
        if path.is_file() and int(path.name[:20]) < AUDITED_FROM:
            path.unlink()


def unproven_copies(root: Path) -> list[str]:
    """Where the next turn does not have all proven, or had to read more than is in the store."""
    run = in_json(*filled(AUDIT, root))
    progress = run.document["ledger"]
    found = (run.exit_code, progress["proven"], progress["due_segments"])
    return [] if found == (0, progress["copies"], 0) else [f"the ledger says {found} of {progress['copies']}"]


def nothing(root: Path) -> None:
    (root / "node").mkdir()


REBUILD = ("rebuild", "{}/logs", *AS_OF, "--jobs", "1")
FIRST = "receipts/first.jsonl"
RECEIPT, AGAIN = ("--receipt", f"{{}}/{FIRST}"), ("--receipt", "{}/receipts/{again}.jsonl")
UPLOAD = ("tier", "upload", "{}/store", "{}/logs", *LONG_AGO, "--uploader", "me", "--i-am-the-leader")
SEGMENT_ID = re.compile(r"(?<=-)[A-Za-z0-9_-]{22}(?=\.)")
"""Drawn by each run; what holds it differs by that."""
REPAIR = ("tier", "repair", "{}/store", *LONG_AGO, "--allow-unverified", "--receipt")
FOLLOWER = ("follower", "repair", str(REMOTE), "{}/node", *AS_OF, "--set-aside", "--topic", "payments")
BUILD = ("follower", "build", str(REMOTE), "{}/node", "--topic-partition", "payments-0", *AS_OF)

TIERED = FIXTURES / "tiered-local" / "remote"
AUDITED_FROM = 5000
"""Retention deletes most copies of ``TIERED``: those below this offset."""
AUDIT = ("tier", "audit", "{}/store", *AS_OF, "--jobs", "1", "--ledger", "{}/audit.ledger")
METADATA = ("tier", "metadata", str(REMOTE), "--log-dirs", "{}/node")
REMOTE_COPIES = 14

WRITERS = {
    "rebuild in place": Writer(bare_log, (*REBUILD, *RECEIPT), (*REBUILD, *AGAIN), r"^receipts/", FIRST),
    "rebuild --out": Writer(
        bare_log,
        (*REBUILD, "--out", "{}/out/of", "--boundaries", "all", *RECEIPT),
        (*REBUILD, "--out", "{}/out/of", "--boundaries", "all", *AGAIN),
        r"^receipts/",
        FIRST,
    ),
    "rebuild --set-aside": Writer(
        false_empty, (*REBUILD, "--set-aside", *RECEIPT), (*REBUILD, "--set-aside", *AGAIN), r"^receipts/", FIRST
    ),
    # The plan names inodes, which no other run has.
    "stage": Writer(bare_log, ("stage", *REBUILD[1:], "--to", "{}/staged"), journals=r"^staged/plan\.jsonl$"),
    # So what is there of another run is not installed; a rebuild finishes what an install has begun.
    "install": Writer(
        staged_log, ("install", "--plan", "{}/staged/plan.jsonl", *RECEIPT), (*REBUILD, *AGAIN), r"^receipts/", FIRST
    ),
    "undo": Writer(rebuilt_log, ("undo", "{}/receipt.jsonl"), journals=r"^receipt\.jsonl$", is_removing=True),
    "follower repair": Writer(lost_follower, (*FOLLOWER, *RECEIPT), (*FOLLOWER, *AGAIN), r"^receipts/", FIRST),
    "follower build": Writer(nothing, (*BUILD, *RECEIPT), (*BUILD, *AGAIN), r"^receipts/", FIRST, codes_again=(0, 3)),
    "tier upload": Writer(whole_log, UPLOAD),
    "tier repair": Writer(
        diseased_store,
        (*REPAIR, "{}/undo.jsonl"),
        (*REPAIR, "{}/{again}.jsonl"),
        r"\.jsonl$",
        is_replacing=True,
        codes=(0, 1),
        codes_again=(0, 1),
    ),
    # A directory that is whole is not replaced: the second run is refused, and names the undo.
    "tier metadata --log-dirs": Writer(
        lost_metadata,
        (*METADATA, *RECEIPT),
        (*METADATA, *AGAIN),
        r"^receipts/",
        FIRST,
        timed=r"^node/__remote_log_metadata-",
        faults_at_end=unequal_records,
        codes_again=(0, 3),
    ),
    "tier audit --ledger": Writer(
        lambda root: shutil.copytree(TIERED, root / "store"), AUDIT, journals=r"^audit\.ledger$", faults_at_end=unproven_copies
    ),
    "tier audit --ledger, written anew": Writer(
        read_ledger, AUDIT, journals=r"^audit\.ledger$", is_replacing=True, faults_at_end=unproven_copies
    ),
    "plan --save": Writer(
        bare_log,
        ("plan", "{}/logs", *AS_OF, "--save", "{}/plan.jsonl"),
        ("plan", "{}/logs", *AS_OF, "--save", "{}/{again}.jsonl"),
        is_elsewhere=True,
    ),
}


@dataclass
class Recorded:
    """A run that was traced.

    Attributes:
        before, after: what was there, and what is there at the end.
        changes: its calls.
        root: where it was.
    """

    before: Tree
    after: Tree
    changes: list[Change]
    root: Path


@contextlib.contextmanager
def directory_in_memory() -> Iterator[Path]:
    """Thousands of states are built; what they hold is decided by the model, not by the disk."""
    base = IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="crash-matrix-", dir=base) as directory:
        yield Path(directory)


def filled(arguments: tuple[str, ...], root: Path, again: str = "again") -> list[str]:
    return [each.replace("{again}", again).replace("{}", str(root)) for each in arguments]


@contextlib.contextmanager
def recorded(writer: Writer, record: Record = traced) -> Iterator[tuple[TreeDisk, Recorded]]:
    """Runs it for real. Gives the disk as it was before, and the run."""
    with directory_in_memory() as above:
        root = above / "root"
        root.mkdir()
        (root / "receipts").mkdir()
        writer.prepare(root)
        disk, before = TreeDisk(root), read_tree(root)
        changes = record(filled(writer.arguments, root), root, above / "state", writer.codes)
        yield disk, Recorded(before, read_tree(root), changes, root)


def contents(tree: Tree) -> dict[str, object]:
    """Contents of each name, whether or not it is linked twice."""
    return {path: what.content if isinstance(what, File) else what for path, what in tree.items()}


def faults(writer: Writer, run: Recorded, tree: Tree) -> list[str]:
    """Faults of a state, by the promises alone."""
    before, after, found = contents(run.before), contents(run.after), []
    journal = re.compile(writer.journals)
    left = contents(tree)
    for path, what in before.items():
        if left.get(path) == what or isinstance(what, Folder):
            continue
        now, wanted = left.get(path), after.get(path)
        if journal.search(path) and isinstance(now, Content) and isinstance(what, Content) and now.data.startswith(what.data):
            continue  # it grew at its end, and nothing in it changed
        if now is None:
            asides = [name for name in left if name.startswith(f"{path}.set-aside.")]
            is_aside = any(left[name] == what for name in asides)
            if not (is_aside or (writer.is_removing and wanted is None)):
                found.append(f"{path} is lost")
        elif now == wanted and wanted != what:
            is_aside = any(left.get(name) == what for name in left if name.startswith(f"{path}.set-aside."))
            if not (writer.is_replacing or is_aside):
                found.append(f"{path} was overwritten")
        elif not TEMPORARY.search(path):
            found.append(f"{path} has neither its old nor its new bytes")
    for path, what in left.items():
        if (
            path in before
            or isinstance(what, Folder)
            or TEMPORARY.search(path)
            or PROGRAM_FILES.search(path)
            or journal.search(path)
        ):
            continue
        reported = left.get(writer.receipt)
        if path not in after:
            found.append(f"{path} is there, and belongs to nothing")
        elif writer.receipt and not (isinstance(reported, Content) and path.rpartition("/")[2].encode() in reported.data):
            found.append(f"{path} has its name, and is not in the receipt")
        elif what != after[path]:
            found.append(f"{path} is half a file, or may not be read by the broker")
    return found


def results(writer: Writer, tree: Tree) -> dict[str, object]:
    """Names and bytes that are the result of a writer: without journals, the lock of a broker, and what is temporary."""
    journal = re.compile(writer.journals)
    return {
        SEGMENT_ID.sub("ID", path): None if _differs_between_runs(writer, path) else what
        for path, what in contents(tree).items()
        if not isinstance(what, Folder)
        if not (TEMPORARY.search(path) or PROGRAM_FILES.search(path) or journal.search(path) or AGAIN_NAME.search(path))
    }


def _differs_between_runs(writer: Writer, path: str) -> bool:
    """Whether another run writes other bytes: the ids and moments of that run."""
    has_ids = path.endswith((".json", ".rsm-manifest")) and not writer.is_replacing
    return has_ids or re.search(writer.timed, path) is not None


def faults_after_another_run(writer: Writer, run: Recorded, tree: Tree, number: int) -> list[str]:
    """The state is made for real, where the run was, and the command run again."""
    shutil.rmtree(run.root)
    run.root.mkdir()
    build_tree(run.root, tree)
    try:
        done = snaprebuild(*filled(writer.again or writer.arguments, run.root, f"again-{number}"))
    except Exception as error:
        return [f"another run throws {error!r}"]
    if done.exit_code not in writer.codes_again:
        return [f"another run ends with {done.exit_code}: {done.stdout[-600:]} {done.error}"]
    found = results(writer, read_tree(run.root))
    wanted = {path: what for path, what in results(writer, run.after).items() if not (writer.is_elsewhere and path not in found)}
    return different(wanted, found, "another run") + writer.faults_at_end(run.root)


def different(wanted: dict[str, object], found: dict[str, object], who: str) -> list[str]:
    missing, more = sorted(wanted.keys() - found.keys()), sorted(found.keys() - wanted.keys())
    other = sorted(path for path in wanted.keys() & found.keys() if wanted[path] != found[path])
    return [f"{who} leaves {what}: {names[:4]}" for what, names in (("away", missing), ("more", more), ("others", other)) if names]


@dataclass
class Figures:
    """Counts of one writer."""

    name: str
    calls: int = 0
    states: int = 0
    runs: int = 0
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def plus(self, other: Figures) -> Figures:
        """The sums, under its own name."""
        sums = (getattr(self, name) + getattr(other, name) for name in ("calls", "states", "runs", "faults", "seconds"))
        return Figures(self.name, *sums)


def explored(name: str, writer: Writer, *, seed: int, runs_max: int, cuts_max: int, record: Record = traced) -> Figures:
    """Follows the run call by call; each state counts once. Of the states ``runs_max`` are made for real and finished by another run."""
    started, figures, rng = time.monotonic(), Figures(name), random.Random(f"{seed} {name}")
    with recorded(writer, record) as (disk, run):
        figures.calls = len(run.changes)
        seen: dict[int, Tree] = {}
        for count in range(len(run.changes) + 1):
            for tree in disk.states(rng, RANDOM_STATES, cuts_max):
                key = key_of(tree)
                if key in seen:
                    continue
                seen[key] = tree
                found = faults(writer, run, tree)
                figures.faults += [f"after {count} calls ({run.changes[max(count - 1, 0)]}): {each}" for each in found]
            if count < len(run.changes):
                disk.follow(run.changes[count])
        figures.faults += different(contents_of_names(run.after), contents_of_names(disk.running()), "the model")
        for tree in disk.states(rng, RANDOM_STATES):
            lost = different(results(writer, run.after), results(writer, tree), "a power failure behind the end")
            figures.faults += lost
        figures.states = len(seen)
        chosen = list(seen.values())
        if len(chosen) > runs_max:
            chosen = rng.sample(chosen, runs_max)
        for number, tree in enumerate(chosen):
            figures.faults += faults_after_another_run(writer, run, tree, number)
            figures.runs += 1
    figures.seconds = time.monotonic() - started
    return figures


def contents_of_names(tree: Tree) -> dict[str, object]:
    """Bytes only: umask and owner of what a program makes are not the model's business."""
    return {path: what.content.data for path, what in tree.items() if isinstance(what, File)}
