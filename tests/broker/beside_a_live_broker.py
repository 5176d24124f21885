"""Verbs next to a real broker that continues working: each result is right for some moment, or reports that it is not known.

Results are kept while the broker works, and judged when it has stopped, by folds of Kafka's own classes.
"""

import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live_broker import LiveBroker
from live_truth import Archive, Files, Fold, Truth
from log_dirs import Entries, entries_in, snapshots_in
from oracle import Oracle
from sentences import CHANGED_WHILE_READ
from typer.testing import CliRunner

from formats.partition.producer_snapshot import ProducerEntry
from snaprebuild.cli.main import app
from snaprebuild.errors import SnaprebuildError

VERBS = (
    *("rebuild", "scan", "verify", "rebuild", "plan", "inspect transactions", "rebuild", "verify"),
    *("inspect explain", "inspect stats", "inspect dump"),
)
SEED_OF_CLIENTS = 8
CLOCK = ("--expiration-ms", "9000000000000")
REFUSALS = {"storage-failed", "refused"}
"""A file that was listed is gone, or another."""
ALLOWED = {
    "boundary-not-reached": f"the log {CHANGED_WHILE_READ}",
    "interrupted-compaction": "the cleaner was about to give its segments their names",
    "source-metadata-older": "a controller that waits for a processor appends nothing for seconds: what it would say is unknown",
}
"""Findings that a healthy broker's moments justify, whatever they are about."""
OF_THE_NEWEST = {"missing-snapshots", "corrupt-snapshot", "wrong-snapshot", "suspect-snapshot"}
"""True of the boundary that the broker is making, and of no other: it begins a segment, and then writes its snapshot, in place."""


@dataclass(frozen=True)
class Said:
    """The documents of one run, with the times at which it ran.

    Attributes:
        ends: size of each segment after the run, by partition and base offset.
        begins: the same before it.
        snapshots: those that were written, by partition and offset.
        unreadable: those that were written and do not parse.
    """

    number: int
    verb: str
    begun_ns: int
    ended_ns: int
    begins: Mapping[str, Mapping[int, int]]
    ends: Mapping[str, Mapping[int, int]]
    code: int
    documents: Sequence[dict[str, Any]]
    snapshots: Mapping[str, Mapping[int, Entries]]
    unreadable: Sequence[str]


@dataclass
class Seen:
    """The result of runs.

    Attributes:
        exit_codes: by verb.
        moved: runs during which the log moved.
        checked: what was compared with Kafka's state, by kind.
        codes: findings.
        happened: what the broker did meanwhile, by kind.
        complaints: errors in the broker's log, and what was left in its directory.
        wrong: what is right for no moment.
    """

    exit_codes: Counter[tuple[str, int]] = field(default_factory=Counter)
    moved: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    happened: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Observed:
    """The documents of all runs, the files that were there meanwhile, and the broker's records and complaints."""

    said: Sequence[Said]
    archive: Archive
    records: int
    complaints: Sequence[str]


def run(version: str, runs: int, seed: int = 0) -> Seen:
    """This many runs of the verbs in turn, all next to one broker."""
    with tempfile.TemporaryDirectory(prefix="beside-a-broker-") as directory:
        what = observed(Path(directory), version, runs, seed)
        with Oracle() as oracle:
            return judged(what, Truth(what.archive, oracle, Path(directory) / "scratch"))


def observed(
    root: Path, version: str, runs: int, seed: int = 0, *, enough: Callable[[Sequence[Said]], bool] = lambda _: True
) -> Observed:
    """Runs them, and further ones, up to ten times as many, until that is enough. Nothing is judged as yet."""
    with LiveBroker(root, version, SEED_OF_CLIENTS + seed) as broker:
        _settle(broker)
        said: list[Said] = []
        while len(said) < runs or (not enough(said) and len(said) < 10 * runs):
            said.append(_one(broker.log_dir, root / "out", seed + len(said)))
        complaints = [*broker.stop(), *_left_behind(broker.log_dir)]
        return Observed(said, Archive(broker.archive), broker.records, complaints)


def judged(what: Observed, truth: Truth) -> Seen:
    """Compares it with Kafka's state, of the same archive."""
    seen, archive = Seen(complaints=list(what.complaints)), what.archive
    seen.happened["records produced"] = what.records
    _count_what_happened(archive, seen)
    for partition in archive.once:
        truth.of_everything(partition, [at for each in what.said for at in _offsets(each, partition)])
    for each in what.said:
        _Judge(archive, truth, each, seen).judge()
    return seen


def _offsets(said: Said, name: str) -> Iterator[int]:
    """At which a run shows the state of a partition."""
    yield from said.snapshots.get(name, ())
    for partition in (each for document in said.documents for each in document.get("partitions", ())):
        end = partition.get({"inspect explain": "offset", "inspect transactions": "log_end_offset"}.get(said.verb, ""))
        if partition["topic_partition"] == name and end is not None:
            yield end


def _settle(broker: LiveBroker) -> None:
    """Until every kind of data is there, and something has been deleted."""
    deadline = time.monotonic() + 300
    while not all(min(_segments(broker.log_dir).get(f"{topic}-0", {0: 0})) > 0 for topic in ("sized", "timed")):
        assert time.monotonic() < deadline, "nothing is deleted"
        time.sleep(0.2)


def _segments(log_dir: Path) -> dict[str, dict[int, int]]:
    """Sizes, as they are now."""
    found: dict[str, dict[int, int]] = {}
    for path in log_dir.glob("*-*/*.log"):
        try:
            found.setdefault(path.parent.name, {})[int(path.stem)] = path.stat().st_size
        except FileNotFoundError:
            continue
    return found


def _one(log_dir: Path, out: Path, number: int) -> Said:
    verb, rng = VERBS[number % len(VERBS)], random.Random(number)
    begins, begun_ns = _segments(log_dir), time.monotonic_ns()
    try:
        done = CliRunner().invoke(
            app, [*verb.split(), *_arguments(verb, log_dir, out, rng), "--output", "json"], catch_exceptions=False
        )
        code, text = done.exit_code, done.stdout
    except SnaprebuildError as error:
        code, text = error.exit_code, ""
    except Exception as error:
        code, text = -1, json.dumps({"findings": [], "raised": repr(error)})
    ended_ns, ends = time.monotonic_ns(), _segments(log_dir)
    documents = (
        [json.loads(line) for line in text.splitlines()]
        if verb == "inspect dump" and code >= 0
        else [json.loads(text)]
        if text
        else []
    )
    snapshots: dict[str, dict[int, Entries]] = {}
    unreadable = []
    for path in sorted(out.glob("**/*")):
        if path.is_file():
            try:
                snapshots.setdefault(path.parent.name, {})[int(path.stem)] = entries_in(path.read_bytes())
            except Exception as error:
                unreadable.append(f"{path}: {error!r}")
    shutil.rmtree(out, ignore_errors=True)
    return Said(number, verb, begun_ns, ended_ns, begins, ends, code, documents, snapshots, unreadable)


def _arguments(verb: str, log_dir: Path, out: Path, rng: random.Random) -> list[str]:
    if verb == "inspect dump":
        return [str(rng.choice(sorted(log_dir.glob("[st]i*-0/*.log"))))]
    arguments = [str(log_dir)]
    if verb in ("plan", "verify", "rebuild", "inspect stats", "inspect explain"):
        arguments += CLOCK
    if verb in ("plan", "rebuild"):
        arguments += ["--out", str(out), "--boundaries", "all"]
    if verb == "rebuild":
        arguments += ["--replay-from", rng.choice(("auto", "auto", "window", "log-start"))]
    if verb not in ("scan", "plan"):
        arguments += ["--jobs", "1"]
    if verb == "inspect explain":
        arguments += ["--producer-id", str(rng.choice(_producers(log_dir)))]
    return arguments


def _producers(log_dir: Path) -> list[int]:
    """Some that a partition knows or knew, of a snapshot of the broker's."""
    for path in sorted(log_dir.glob("sized-0/*.snapshot"), reverse=True)[1:]:
        try:
            return sorted(each.producer_id for each in entries_in(path.read_bytes())) or [0]
        except FileNotFoundError:
            continue
    return [0]


def _left_behind(log_dir: Path) -> list[str]:
    """Files of no one in the broker's directories, and snapshots of a broker that has stopped that are not whole."""
    strange = [str(path) for path in log_dir.glob("**/*") if "snaprebuild" in path.name or path.name.endswith(".snapshot.tmp")]
    for partition in log_dir.glob("*-0"):
        snapshots_in(partition)
    return [f"left in the broker's directory: {each}" for each in strange]


def _count_what_happened(archive: Archive, seen: Seen) -> None:
    for listings in archive.listings.values():
        files = {pair for each in listings for pair in each.files.items()}
        bases = {base for base, _ in files}
        seen.happened["segments rolled"] += len(bases) - 1
        seen.happened["segments deleted by retention"] += sum(base < min(listings[-1].files) for base in bases)
        seen.happened["segments written anew by the cleaner"] += len(files) - len(bases)


class _Judge:
    """Judges the documents of one run."""

    def __init__(self, archive: Archive, truth: Truth, said: Said, seen: Seen) -> None:
        self._archive = archive
        self._truth = truth
        self._said = said
        self._seen = seen

    def judge(self) -> None:
        """Counts, and shows what is wrong."""
        said, seen = self._said, self._seen
        seen.exit_codes[said.verb, said.code] += 1
        seen.moved += said.begins != said.ends
        seen.wrong += [f"run {said.number}, {said.verb}: {each}" for each in self._faults()]

    def _faults(self) -> Iterator[str]:
        said = self._said
        yield from said.unreadable
        if said.code not in (0, 1, 3, 5):
            yield f"exit code {said.code}: {[each.get('raised') or each['findings'] for each in said.documents]}"
            return
        for document in said.documents:
            for finding in document.get("findings", ()) if isinstance(document.get("findings"), list) else ():
                yield from self._finding(finding)
            for partition in document.get("partitions", ()):
                if self._is_known(partition["topic_partition"]):
                    yield from self._partition(partition)
        if said.verb == "inspect dump":
            yield from self._dump()
        for name, snapshots in said.snapshots.items():
            if self._is_known(name):
                yield from self._snapshots(name, snapshots)

    def _is_known(self, name: str) -> bool:
        """The witness has every file of a partition that may have lain there during the run. It counts the partition if not."""
        there = {pair for files in self._candidates(name) for pair in files.items()}
        if there.isdisjoint(self._archive.lost[name]):
            return True
        self._seen.checked["not judged, as the witness missed a file that the cleaner replaced"] += 1
        return False

    # ---- findings ----

    def _finding(self, finding: dict[str, Any]) -> Iterator[str]:
        code = finding["code"]
        self._seen.codes[f"{code} ({finding['severity']})"] += 1
        if finding["severity"] == "note" or code in REFUSALS or code in ALLOWED:
            return
        name = next((part for part in Path(finding["path"]).parts if part in self._said.ends), None)
        if code == "unsound-boundary" and name not in self._archive.once:
            return  # where the cleaner was, no replay knows everybody
        if code == "unproven-boundary" and name is not None and min(self._said.begins.get(name, {0: 0}), default=0) > 0:
            return  # retention deleted the first records of a transaction that is open for long on a busy machine
        if code in OF_THE_NEWEST and name is not None and finding.get("offset") is not None:
            newest = max(self._said.begins.get(name, {0: 0}))
            if finding["offset"] >= newest:
                return
        yield f"{finding}"

    def _is_refused(self, name: str) -> bool:
        """Not all of a partition was read, and a finding says so."""
        findings = [each for document in self._said.documents for each in document["findings"]]
        return any(each["code"] in REFUSALS and name in Path(each["path"]).parts for each in findings)

    # ---- what is said of partitions ----

    def _partition(self, partition: dict[str, Any]) -> Iterator[str]:
        name, verb = partition["topic_partition"], self._said.verb
        if verb in ("rebuild", "verify"):
            yield from self._inputs(name, partition["inputs"])
        if verb == "scan":
            newest = max(self._said.begins[name])
            for each in partition["boundaries"]:
                self._seen.checked["boundaries of scan"] += 1
                if each["offset"] < newest and each["state"] not in ("present", "not due"):
                    yield f"{name}: {each}"
        elif verb == "plan":
            yield from self._planned(name, partition)
        elif verb == "inspect transactions" and partition["log_end_offset"] is not None:
            yield from self._open(name, partition)
        elif verb == "inspect explain" and partition["offset"] is not None:
            yield from self._explained(name, partition)
        elif verb == "inspect stats" and not self._is_refused(name):
            yield from self._counted(name, partition)

    def _candidates(self, name: str) -> list[Files]:
        return self._archive.of_moment(name, self._said.begun_ns, self._said.ended_ns)

    def _folds(self, name: str, candidates: Sequence[Files], end: int) -> list[Fold]:
        return [fold for files in candidates if (fold := self._truth.of_files(name, files, end)) is not None]

    def _bounds(self, name: str, candidates: Sequence[Files]) -> tuple[int, int]:
        """Log end before the run and after it."""
        begins, ends = self._said.begins.get(name, {}), self._said.ends[name]
        least = [self._end_of(name, files, begins) for files in candidates if files]
        most = [self._end_of(name, files, ends) for files in candidates if files]
        return min(least, default=0), max(most, default=0)

    def _end_of(self, name: str, files: Files, sizes: Mapping[int, int]) -> int:
        return self._archive.end_offset(name, files, {base: size for base, size in sizes.items() if base in files})

    def _inputs(self, name: str, inputs: list[dict[str, Any]]) -> Iterator[str]:
        self._seen.checked["listings"] += 1
        listed = [int(each["name"][:20]) for each in inputs]
        if not any(listed == list(files) for files in self._candidates(name)):
            yield f"{name}: these segments never lay there together: {listed}"

    def _planned(self, name: str, partition: dict[str, Any]) -> Iterator[str]:
        candidates = self._candidates(name)
        least, most = self._bounds(name, candidates)
        bases = {base for files in candidates for base in files}
        for each in partition["boundaries"]:
            self._seen.checked["boundaries of plan"] += 1
            if each["is_log_end"] and not least <= each["offset"] <= most:
                yield f"{name}: log end {each['offset']}, and not {least} to {most}"
            if not each["is_log_end"] and each["offset"] not in bases:
                yield f"{name}: no segment began at {each['offset']}"

    def _snapshots(self, name: str, snapshots: Mapping[int, Entries]) -> Iterator[str]:
        candidates = self._candidates(name)
        _, most = self._bounds(name, candidates)
        whole = self._truth.of_everything(name, snapshots).states
        classes = self._classes(name)
        for offset, found in snapshots.items():
            self._seen.checked["snapshots written"] += 1
            if offset > most:
                yield f"{name}: a snapshot at {offset}, above the log end {most}"
                continue
            truth = whole.get(offset)
            if found == truth:
                self._seen.checked["of them equal to the fold of all that was ever written"] += 1
                continue
            if classes[offset] == "EXACT" and truth is not None:
                yield f"{name}: the snapshot at {offset} is called EXACT and is not: {len(found)} entries"
                continue
            folds = self._folds(name, candidates, max(snapshots))
            retained = [fold.states[offset] for fold in folds if offset in fold.states]
            if found in retained:
                continue
            # Of a snapshot at the first offset only those entries count that something confirms.
            if truth is not None and any(_each_of_one(found, truth, each) for each in retained):
                self._seen.checked["of them entry by entry of that fold or of the retained log's"] += 1
                continue
            yield f"{name}: the snapshot at {offset} is of no moment: {len(found)} entries"

    def _classes(self, name: str) -> dict[int, str]:
        """The class that the run gave each snapshot that it wrote."""
        partitions = [each for document in self._said.documents for each in document["partitions"]]
        return {
            boundary["offset"]: boundary["class"]
            for partition in partitions
            if partition["topic_partition"] == name
            for boundary in partition["boundaries"]
        }

    def _open(self, name: str, partition: dict[str, Any]) -> Iterator[str]:
        self._seen.checked["last stable offsets"] += 1
        candidates, end = self._candidates(name), partition["log_end_offset"]
        least, most = self._bounds(name, candidates)
        if not least <= end <= most:
            yield f"{name}: log end {end}, and not {least} to {most}"
        # A snapshot at the log start reports transactions that began below it.
        folds = [*self._folds(name, candidates, end), self._truth.of_everything(name, [end])]
        undecided = {fold.undecided[end] for fold in folds if end in fold.undecided}
        stable = {end if each is None else each for each in undecided}
        if partition["last_stable_offset"] not in stable:
            yield f"{name}: last stable offset {partition['last_stable_offset']}, and not {sorted(stable)}"

    def _explained(self, name: str, partition: dict[str, Any]) -> Iterator[str]:
        self._seen.checked["producers explained"] += 1
        end = partition["offset"]
        folds = [*self._folds(name, self._candidates(name), end), self._truth.of_everything(name, [end])]
        states = [{each.producer_id: each for each in fold.states[end]} for fold in folds if end in fold.states]
        entry = partition["entry"] and ProducerEntry(**partition["entry"])
        if entry not in [state.get(self._said.documents[0]["producer_id"]) for state in states]:
            yield f"{name}: at {end} never {entry}"

    def _counted(self, name: str, partition: dict[str, Any]) -> Iterator[str]:
        self._seen.checked["batches counted"] += 1
        possible = set()
        for files in self._candidates(name):
            closed = [base for base in files if base != max(files)]
            rest = partition["totals"]["size_bytes"] - sum(
                self._archive.path(name, base, files[base]).stat().st_size for base in closed
            )
            if 0 <= rest <= self._archive.path(name, max(files), files[max(files)]).stat().st_size:
                last = self._archive.batches(name, max(files), files[max(files)])
                count = sum(len(self._archive.batches(name, base, files[base])) for base in closed)
                possible.add(count + sum(each.end_bytes <= rest for each in last))
        if partition["totals"]["batches"] not in possible:
            totals = partition["totals"]
            yield f"{name}: {totals['batches']} batches in {totals['size_bytes']} bytes, and not {sorted(possible)}"

    def _dump(self) -> Iterator[str]:
        (path,) = {each["file"] for each in self._said.documents if each["item"] == "file"} or {None}
        if path is None:
            return
        self._seen.checked["segments dumped"] += 1
        name, base = Path(path).parent.name, int(Path(path).stem)
        if not self._is_known(name):
            return
        reported = [each["base_offset"] for each in self._said.documents if each["item"] == "batch"]
        files = next(files for files in self._candidates(name) if base in files)
        kept = [each.base_offset for each in self._archive.batches(name, base, files[base])]
        if reported != kept[: len(reported)]:
            yield f"{path}: other batches than those that were written"


def _each_of_one(found: Entries, one: Entries, other: Entries) -> bool:
    """Each producer has the entry of one of two states, which may be that it has none."""
    states = [{entry.producer_id: entry for entry in state} for state in (found, one, other)]
    producers = set().union(*states)
    return all(states[0].get(each) in (states[1].get(each), states[2].get(each)) for each in producers)
