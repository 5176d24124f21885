"""Every verb of the command, with a small healthy tree that it is given: for tests that damage or change these trees."""

import glob
import re
from dataclasses import dataclass
from pathlib import Path

from command import snaprebuild
from log_dirs import EMPTY_SNAPSHOT
from manifests import AIVEN, FIXTURES, LONG_AGO

from snaprebuild.cli.main import verbs

HEALTHY = FIXTURES / "damaged" / "healthy"
AS_OF = ("--as-of", "1795266500000")
ONE_JOB = ("--jobs", "1")
P = "log/payments-0"


@dataclass(frozen=True)
class Verb:
    """A command over a tree that is other than it should be.

    Attributes:
        arguments: ``{}`` is the tree, ``{out}`` a place that is free.
        reads: directories and files of the healthy tree that it is given.
        edited: beginnings of paths that may be other; all where empty.
        makes: what has to be made before, by commands.
        is_replacing: a file may have other bytes after the run.
    """

    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    edited: tuple[str, ...] = ()
    makes: tuple[tuple[str, ...], ...] = ()
    is_replacing: bool = False


TIER = ("{}/tier/remote", "--metadata-log", "{}/tier/metadata")
RECEIPT = ("--receipt", "{}/receipt.jsonl")
PLANNED = ("plan", "{}/log", *AS_OF, "--boundaries", "all", "--out", "{}/planned", "--save", "{}/plan.json")
REBUILT = ("rebuild", "{}/log", *AS_OF, "--out", "{}/written", "--boundaries", "all", *ONE_JOB, *RECEIPT)
STAGED = ("stage", "{}/bare", *AS_OF, "--to", "{}/staged", *ONE_JOB)
VERBS = {
    "scan": Verb(("scan", "{}/log"), ("log",)),
    "plan": Verb(("plan", "{}/log", *AS_OF, "--boundaries", "all"), ("log",)),
    "verify": Verb(("verify", "{}/log", *AS_OF, *ONE_JOB), ("log",)),
    "rebuild": Verb(
        ("rebuild", "{}/log", *AS_OF, "--out", "{out}", "--boundaries", "all", *ONE_JOB, "--receipt", "{out}.jsonl"), ("log",)
    ),
    "rebuild in place": Verb(("rebuild", "{}/bare", *AS_OF, "--set-aside", *ONE_JOB, "--receipt", "{out}"), ("bare",)),
    "rebuild --plan": Verb(
        ("rebuild", "--plan", "{}/plan.json", *ONE_JOB, "--receipt", "{out}"), ("log",), ("plan.json",), (PLANNED,)
    ),
    "fleet": Verb(
        ("fleet", "{}/scan.json", "{}/other.json", "--metadata", "{}/node"),
        ("log", "node", "other"),
        ("scan.json", "other.json", "node/__cluster_metadata-0"),
        (("scan", "{}/log", "--save-json", "{}/scan.json"), ("scan", "{}/other", "--save-json", "{}/other.json")),
    ),
    "stage": Verb(("stage", "{}/bare", *AS_OF, "--to", "{out}", *ONE_JOB), ("bare",)),
    "install": Verb(
        ("install", "--plan", "{}/staged/plan.jsonl", *ONE_JOB, "--receipt", "{out}"),
        ("bare",),
        ("staged", f"bare/payments-0/{0:020d}"),
        (STAGED,),
    ),
    "report": Verb(
        ("report", "{}/scan.json", "{}/verify.json", "{}/receipt.jsonl", "--html", "{out}"),
        ("log",),
        ("scan.json", "verify.json", "receipt.jsonl"),
        (REBUILT, ("scan", "{}/log", "--save-json", "{}/scan.json"), ("verify", "{}/log", *AS_OF, "--save-json", "{}/verify.json")),
    ),
    "before-start": Verb(("before-start", "{}/bare", *ONE_JOB, "--receipt", "{out}"), ("bare",)),
    "inspect stats": Verb(("inspect", "stats", "{}/log", *AS_OF, *ONE_JOB), ("log",)),
    "inspect dump": Verb(
        ("inspect", "dump", f"{{}}/{P}/*", "{}/controller/__cluster_metadata-0/*", "--deep", "--print-data-log"),
        ("log", "controller"),
    ),
    "inspect records": Verb(("inspect", "records", "{}/log", "--key-format", "hex"), ("log",)),
    "inspect records --out": Verb(("inspect", "records", "{}/log", "--out", "{out}"), ("log",)),
    "inspect records (store)": Verb(("inspect", "records", TIER[0], "{}/log", *TIER[1:], "--out", "{out}"), ("log", "tier")),
    "inspect diff": Verb(("inspect", "diff", f"{{}}/{P}/{56:020d}.snapshot", f"{{}}/{P}/{116:020d}.snapshot"), ("log",), (P,)),
    "inspect explain": Verb(("inspect", "explain", "{}/log", "--producer-id", "1", *AS_OF, *ONE_JOB), ("log",)),
    "inspect explain (snapshot)": Verb(("inspect", "explain", f"{{}}/{P}/{116:020d}.snapshot", *AS_OF, *ONE_JOB), ("log",)),
    "inspect transactions": Verb(("inspect", "transactions", "{}/log", *AS_OF, *ONE_JOB), ("log",)),
    "follower offsets": Verb(("follower", "offsets", TIER[0], "{}/log", *TIER[1:], *ONE_JOB), ("log", "tier")),
    "follower fetch-path": Verb(("follower", "fetch-path", TIER[0], "{}/log", *TIER[1:]), ("log", "tier")),
    "undo": Verb(("undo", "{}/receipt.jsonl", "--dry-run"), ("log",), ("receipt.jsonl", "written"), (REBUILT,)),
    "verify --written-by": Verb(("verify", "--written-by", "{}/receipt.jsonl"), ("log",), ("receipt.jsonl", "written"), (REBUILT,)),
    "cluster source": Verb(("cluster", "source", "{}/node", *ONE_JOB), ("node",)),
    "cluster isr": Verb(("cluster", "isr", "{}/node"), ("node",), ("node/__cluster_metadata-0", "node/meta")),
    "simulate isr": Verb(("simulate", "isr", "--scenario", "{}/steps.txt"), ("steps.txt",)),
    "tier inventory": Verb(("tier", "inventory", *TIER), ("tier",)),
    "tier inventory --keys": Verb(("tier", "inventory", *TIER, "--keys", "{out}"), ("tier",)),
    "tier metadata": Verb(("tier", "metadata", *TIER, "--log-start", "payments-0=0"), ("tier",)),
    "tier metadata --records-file": Verb(
        ("tier", "metadata", *TIER, "--log-start", "payments-0=0", "--records-file", "{out}"), ("tier",)
    ),
    "tier audit": Verb(("tier", "audit", *TIER, *AS_OF, *ONE_JOB), ("tier",)),
    "tier audit (plugin)": Verb(("tier", "audit", "{}/aiven", *AS_OF, *ONE_JOB), ("aiven",)),
    "tier audit --ledger": Verb(("tier", "audit", *TIER, *AS_OF, *ONE_JOB, "--ledger", "{out}"), ("tier",)),
    "tier repair": Verb(
        ("tier", "repair", "{}/diseased", *LONG_AGO, "--allow-unverified", "--receipt", "{out}", *ONE_JOB),
        ("diseased",),
        is_replacing=True,
    ),
    "tier repair --audit": Verb(
        ("tier", "repair", "{}/diseased", "--audit", "{}/audit.json", "--allow-unverified", "--receipt", "{out}", *ONE_JOB),
        ("diseased",),
        ("diseased", "audit.json"),
        (("tier", "audit", "{}/diseased", *LONG_AGO, *ONE_JOB, "--save-json", "{}/audit.json"),),
        is_replacing=True,
    ),
    "tier upload": Verb(
        ("tier", "upload", "{}/store", "{}/zookeeper", *LONG_AGO, "--uploader", "me", "--i-am-the-leader"), ("zookeeper", "store")
    ),
    "follower plan": Verb(("follower", "plan", TIER[0], "{}/log", *TIER[1:], *ONE_JOB), ("log", "tier")),
    "follower build": Verb(
        (
            "follower",
            "build",
            "{}/tier/remote",
            "{}/empty",
            "--topic-partition",
            "payments-0",
            *AS_OF,
            *ONE_JOB,
            "--receipt",
            "{out}",
        ),
        ("tier/remote", "empty"),
    ),
    "follower check": Verb(("follower", "check", TIER[0], "{}/lost", *TIER[1:], *AS_OF, *ONE_JOB), ("lost", "tier")),
    "follower repair": Verb(
        ("follower", "repair", TIER[0], "{}/lost", *TIER[1:], *AS_OF, "--set-aside", *ONE_JOB, "--receipt", "{out}"),
        ("lost", "tier"),
    ),
    "cluster image": Verb(("cluster", "image", "{}/controller"), ("controller",)),
    "cluster history": Verb(("cluster", "history", "{}/controller", "--topic", "meta-1"), ("controller",)),
    "cluster check": Verb(("cluster", "check", "{}/controller"), ("controller",)),
    "cluster advise": Verb(("cluster", "advise", "{}/controller", *LONG_AGO), ("controller",)),
    "simulate metadata-log": Verb(("simulate", "metadata-log", "{}/scenario.toml"), ("scenario.toml",)),
}
SCENARIO = b"""title = "An hour"
duration = "1h"
elections = ["30m", "40m"]
[config]
metadata.max.retention.bytes = 60000
metadata.max.retention.ms = "20m"
metadata.start.offset.lag.time.max.ms = "10m"
[nodes]
segment_bytes = 10000
checkpoint_bytes = 4000
checkpoint_growth_bytes = 100
[[append]]
every = "1m"
records = 5
bytes = 800
[[append]]
from = "10m"
until = "12m"
every = "10s"
records = 50
bytes = 6000
[[replica]]
id = 2
checkpoint_shift = "2m"
down = [["10m", "15m"], ["40m", "50m"]]
[[replica]]
id = 3
stuck = [["20m", "21m"]]
lag_records = 10
[[listener]]
name = "broker"
lag_records = 100
stuck = [["3m", "4m"]]
"""
REGISTERED = b"version=1\nnode.id=2\ncluster.id=Pq2wE8rTSkGz6xYb1nMc3A\ndirectory.id=dSQ-PasJ8-bzJ4N5HoZG4Q\n"
"""The disk that broker 2 registered with, in the metadata log of ``node``."""
STEPS = b"# a follower returns\nproduce 1\nfetch 2\nlose-tail 2\nproduce 1\nstart 2\nfetch 2\nshrink 1\ncrash 1\nfail-over\n"


def healthy() -> dict[str, bytes]:
    """Everything that a verb may be given, by path."""
    files = {
        f"{name}/{path.relative_to(HEALTHY / name).as_posix()}": path.read_bytes()
        for name in ("log", "node", "tier", "controller")
        for path in sorted((HEALTHY / name).rglob("*"))
        if path.is_file()
    }
    for name, store, wanted in (
        ("aiven", AIVEN / "plain", "/deleted-"),
        ("diseased", AIVEN / "diseased", "/0/00000000000000000"),
    ):
        root = store / "store"
        chosen = sorted(path for path in root.rglob("*") if path.is_file() and wanted in path.as_posix())
        files |= {f"{name}/{path.relative_to(root).as_posix()}": path.read_bytes() for path in chosen}
    of_log = {name.removeprefix("log/"): data for name, data in files.items() if name.startswith("log/")}
    files |= {f"bare/{name}": data for name, data in of_log.items() if not name.endswith(f"{56:020d}.snapshot")}
    files |= {f"other/{name}": data for name, data in of_log.items()}
    files["other/meta.properties"] = REGISTERED
    files["other/.kafka_cleanshutdown"] = b'{"version":0,"brokerEpoch":84}'
    files |= {f"zookeeper/{name}": data for name, data in of_log.items()}
    files["zookeeper/meta.properties"] = b"version=0\nbroker.id=1\n"
    files |= {f"lost/{name}": data for name, data in of_log.items() if f"/{0:020d}" not in name and f"/{56:020d}" not in name}
    files |= {f"lost/payments-0/{at:020d}.snapshot": EMPTY_SNAPSHOT for at in (116, 173)}
    files["lost/log-start-offset-checkpoint"] = b"0\n1\npayments 0 0\n"
    files["empty/meta.properties"] = files["log/meta.properties"]
    files["store/readme"] = b"no object of a plugin"
    files["scenario.toml"] = SCENARIO
    files["steps.txt"] = STEPS
    return files


def words_of(verb: str) -> str:
    """Its name without what distinguishes several runs of it."""
    return next(" ".join(verb.split()[:count]) for count in (2, 1) if " ".join(verb.split()[:count]) in verbs())


def filled(arguments: tuple[str, ...], root: Path) -> list[str]:
    """Over the tree at ``root``; what is written goes to ``out`` in it."""
    words = [each.replace("{out}", str(root / "out")).replace("{}", str(root)) for each in arguments]
    return [word for each in words for word in (sorted(glob.glob(each, include_hidden=True)) if "*" in each else [each])]


INTERNALS = re.compile(r"Traceback|\w+Error\b|\w+Exception|isoformat|NoneType|Errno|integer range|python|<class|object at 0x")
"""Words of the language that the program is written in."""


def is_printable(text: str) -> bool:
    """Nothing in it that a terminal would obey."""
    return not any((each < " " and each != "\n") or "\x7f" <= each < "\xa0" for each in text)


def written(verb: Verb, root: Path) -> None:
    """The healthy tree of a verb, and what commands make in it."""
    for name, data in healthy().items():
        if any(name == each or name.startswith(f"{each}/") for each in verb.reads):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)
    for arguments in verb.makes:
        ran = snaprebuild(*filled(arguments, root))
        assert ran.exit_code in (0, 1), ran
