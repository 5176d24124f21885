"""A file of the wrong kind is named for what it is, and for the command that takes it: each option and argument, each kind of file."""

import gzip
import json
import shlex
from pathlib import Path

import click
import pytest
from command import snaprebuild
from every_verb import SCENARIO, STEPS
from log_dirs import EMPTY_SNAPSHOT, copy_of
from manifests import FIXTURES

from snaprebuild.cli.file_kinds import SETTING_NAMES, recognize
from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.settings import SETTINGS

LOG = FIXTURES / "damaged" / "healthy" / "log"
CONTROLLER = FIXTURES / "damaged" / "healthy" / "controller"
PARTITION = LOG / "payments-0"
LOGS = "fixtures/kafka27-mixed/logs"
NODE = "fixtures/kraft-cluster3/node1"
REMOTE = "fixtures/tiered-local/remote"

NOUNS = {
    "saved-plan": "a saved plan",
    "staged-plan": "a staged plan",
    "receipt": "a receipt",
    "store-receipt": "a receipt of `tier repair`",
    "metadata-receipt": "a receipt of `tier metadata`",
    "follower-receipt": "a receipt of `follower build`",
    "audit-ledger": "a ledger of `tier audit`",
    "scan-result": "the JSON result of `scan`",
    "verify-result": "the JSON result of `verify`",
    "audit-result": "the JSON result of `tier audit`",
    "image-result": "the JSON result of `cluster image`",
    "before-start-result": "the JSON result of `before-start`",
    "undo-result": "the JSON result of `undo`",
    "page": "an HTML page",
    "metrics": "a file of metrics",
    "server-properties": "the configuration of a broker",
    "client-properties": "the configuration of a Kafka client",
    "settings": "a file of settings",
    "metadata-scenario": "a scenario of `simulate metadata-log`",
    "isr-scenario": "a scenario of `simulate isr`",
    "segment": "a segment",
    "snapshot": "a producer snapshot",
    "offset-index": "an index of a segment",
    "time-index": "an index of a segment",
    "transaction-index": "an index of a segment",
    "kraft-checkpoint": "a snapshot of the metadata log",
    "leader-epochs": "a small file of a broker (leader-epoch-checkpoint)",
    "checkpoint": "a small file of a broker (offset-checkpoint)",
    "partition-metadata": "a small file of a broker (partition-metadata)",
    "meta-properties": "a small file of a broker (meta-properties)",
    "other-json": "JSON of another program",
    "gzip": "a compressed file",
    "empty": "an empty file",
    "binary": "binary data",
}
KAFKA = {
    "segment",
    "snapshot",
    "offset-index",
    "time-index",
    "transaction-index",
    "kraft-checkpoint",
    "leader-epochs",
    "checkpoint",
    "partition-metadata",
    "meta-properties",
}

TAKERS = {
    "saved-plan": "`rebuild --plan FILE`",
    "staged-plan": "`install --plan FILE`",
    "receipt": "`undo FILE`",
    "store-receipt": "`undo FILE`",
    "metadata-receipt": "`undo FILE`",
    "follower-receipt": "`undo FILE`",
    "audit-ledger": "`tier repair --ledger FILE`",
    "scan-result": "`fleet FILE`",
    "verify-result": "`report FILE`",
    "audit-result": "`tier repair STORE --audit FILE`",
    "page": "a browser",
    "metrics": "Prometheus",
    "server-properties": "`--server-properties FILE`",
    "client-properties": "`tier upload --producer-config FILE`",
    "settings": "`--config FILE`",
    "metadata-scenario": "`simulate metadata-log FILE`",
    "isr-scenario": "`simulate isr --scenario FILE`",
    "snapshot": "`inspect explain FILE`",
    "gzip": "unpack it first",
    **dict.fromkeys(KAFKA - {"snapshot"}, "`inspect dump FILE`"),
}
"""Words that the sentence contains; kinds that no command takes are absent."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A file of each kind; what this program writes is written by it."""
    root = tmp_path_factory.mktemp("kinds")
    made = {
        "saved-plan": root / "plan.json",
        "staged-plan": root / "staged" / "plan.jsonl",
        "receipt": root / "receipt.jsonl",
        "scan-result": root / "scan.json",
        "verify-result": root / "verify.json",
        "audit-result": root / "audit.json",
        "image-result": root / "image.json",
        "before-start-result": root / "before-start.json",
        "undo-result": root / "undo.json",
        "page": root / "page.html",
        "metrics": root / "m.prom",
        "audit-ledger": root / "audit.ledger",
    }
    logs = root / "logs"
    logs.mkdir()
    on_this_disk = copy_of("kafka27-mixed", root / "staged-from")  # a stage links: it cannot go to another file system
    commands: tuple[tuple[object, ...], ...] = (
        ("plan", LOGS, "--out", root / "planned", "--save", made["saved-plan"]),
        ("stage", on_this_disk, "--to", root / "staged"),
        ("rebuild", LOGS, "--out", root / "written", "--receipt", made["receipt"]),
        ("scan", LOGS, "--save-json", made["scan-result"], "--metrics", made["metrics"]),
        ("verify", LOGS, "--save-json", made["verify-result"]),
        ("cluster image", NODE, "--save-json", made["image-result"]),
        ("before-start", logs, "--save-json", made["before-start-result"]),
        ("undo", made["receipt"], "--dry-run", "--save-json", made["undo-result"]),
        ("report", made["scan-result"], "--html", made["page"]),
        ("tier audit", REMOTE, "--ledger", made["audit-ledger"], "--save-json", made["audit-result"]),
    )
    for words in commands:
        ran = snaprebuild(*words)
        assert ran.exit_code in (0, 1), (words, ran.stderr)
    store_receipt = json.dumps({"schema": "snaprebuild.tier-undo/3", "location": "/nowhere"}, separators=(",", ":"))
    written = {
        "store-receipt": ("tier.jsonl", f"{store_receipt}\n".encode()),
        "metadata-receipt": ("metadata.jsonl", b'{"schema":"snaprebuild.metadata-undo/2"}\n'),
        "follower-receipt": ("follower.jsonl", b'{"schema":"snaprebuild.follower-undo/2"}\n'),
        "server-properties": ("server.properties", f"broker.id=1\nlog.dirs={logs}\n".encode()),
        "client-properties": ("client.properties", b"# who\nsecurity.protocol=SSL\nssl.ca.location=/ca.pem\n"),
        "settings": ("config.toml", b"# of this host\nmax_requests = 1000\n"),
        "metadata-scenario": ("hour.toml", SCENARIO),
        "isr-scenario": ("steps.txt", STEPS),
        "other-json": ("other.json", b'{"a": 1}'),
        "gzip": ("scan.json.gz", gzip.compress(b'{"a": 1}')),
        "empty": ("nothing", b""),
        "binary": ("core", b"\x7fELF\0\xff\xfe" * 9),
        "transaction-index": (f"{0:020d}.txnindex", b""),
    }
    for kind, (name, data) in written.items():
        made[kind] = root / name
        made[kind].write_bytes(data)
    made |= {
        "segment": PARTITION / f"{0:020d}.log",
        "snapshot": PARTITION / f"{56:020d}.snapshot",
        "offset-index": PARTITION / f"{0:020d}.index",
        "time-index": PARTITION / f"{0:020d}.timeindex",
        "kraft-checkpoint": sorted((CONTROLLER / "__cluster_metadata-0").glob("*.checkpoint"))[0],
        "leader-epochs": PARTITION / "leader-epoch-checkpoint",
        "checkpoint": LOG / "replication-offset-checkpoint",
        "partition-metadata": PARTITION / "partition.metadata",
        "meta-properties": LOG / "meta.properties",
    }
    return made


INPUTS: dict[tuple[str, str], tuple[str, set[str]]] = {
    ("report", "files"): ("report {} --html {tmp}/page.html", {"receipt", "scan-result", "verify-result", "audit-result"}),
    ("undo", "receipt"): ("undo {} --dry-run", {"receipt", "store-receipt", "metadata-receipt", "follower-receipt"}),
    ("install", "--plan"): ("install --plan {} --dry-run", {"staged-plan"}),
    ("rebuild", "--plan"): ("rebuild --plan {} --dry-run", {"saved-plan"}),
    ("stage", "--plan"): ("stage --plan {} --dry-run", {"saved-plan"}),
    ("verify", "--written-by"): ("verify --written-by {}", {"receipt"}),
    ("fleet", "files"): ("fleet {}", {"scan-result"}),
    ("fleet", "--metadata"): ("fleet {scan} --metadata {}", set()),
    ("simulate isr", "--scenario"): ("simulate isr --scenario {}", {"isr-scenario"}),
    ("simulate metadata-log", "scenario"): ("simulate metadata-log {}", {"metadata-scenario"}),
    ("tier upload", "--producer-config"): (
        "tier upload {tmp} fixtures/kafka4-mixed/logs --dry-run --produce-to localhost:1 --producer-config {}",
        {"client-properties"},
    ),
    ("tier metadata", "--producer-config"): (
        f"tier metadata {REMOTE} --topic mixed --dry-run --produce-to localhost:1 --producer-config {{}}",
        {"client-properties"},
    ),
    **{
        (verb, "--command-config"): (
            f"{verb} {REMOTE} --bootstrap-server localhost:1 --command-config {{}} {more}",
            {"client-properties"},
        )
        for verb, more in (("tier inventory", ""), ("tier metadata", ""), ("tier audit", ""), ("tier repair", "--dry-run"))
    },
    **{
        (verb, "--ledger"): (f"{verb} {REMOTE} --ledger {{}} {more}", {"audit-ledger"})
        for verb, more in (("tier audit", ""), ("tier repair", "--dry-run"))
    },
    ("tier repair", "--audit"): (f"tier repair {REMOTE} --audit {{}} --allow-unverified --dry-run", {"audit-result"}),
    ("inspect dump", "files"): ("inspect dump {}", KAFKA | {"empty", "binary"}),
    ("inspect diff", "files"): (f"inspect diff {{}} {shlex.quote(f'{PARTITION}/{56:020d}.snapshot')}", {"snapshot"}),
    ("inspect explain", "paths"): ("inspect explain {} --jobs 1", {"snapshot"}),
    ("follower build", "--server-properties"): (
        f"follower build {REMOTE} {{tmp}} --topic-partition mixed-0 --server-properties {{}} --dry-run",
        {"server-properties"},
    ),
    **{
        (verb, "--server-properties"): (f"{verb} {REMOTE} --server-properties {{}} {more}", {"server-properties"})
        for verb, more in (("tier inventory", ""), ("tier metadata", ""), ("tier audit", ""), ("tier repair", "--dry-run"))
    },
    **{
        (verb, "--server-properties"): (f"{verb} {REMOTE} {LOGS} --server-properties {{}} {more}", {"server-properties"})
        for verb, more in (
            ("tier upload", "--dry-run"),
            ("follower plan", ""),
            ("follower offsets", ""),
            ("follower fetch-path", ""),
            ("follower check", "--jobs 1"),
            ("follower repair", "--dry-run"),
        )
    },
    ("cluster advise", "--server-properties"): ("cluster advise --server-properties {}", {"server-properties"}),
    ("cluster advise", "directory"): ("cluster advise {}", set()),
    ("cluster advise", "others"): (f"cluster advise {NODE} {{}}", set()),
    ("cluster check", "directories"): ("cluster check {}", set()),
    ("cluster check", "--leader"): (f"cluster check {NODE} --leader {{}}", set()),
    **{("tier metadata", option): (f"tier metadata {REMOTE} {option} {{}}", set()) for option in ("--log-dir", "--log-dirs")},
    ("tier audit", "--log-dir"): (f"tier audit {REMOTE} --log-dir {{}}", set()),
    ("inspect transactions", "--transaction-state"): (f"inspect transactions {LOGS} --transaction-state {{}}", set()),
    **{
        (verb, "--server-properties"): (f"{verb} --server-properties {{}} {more}", {"server-properties"})
        for verb, more in (
            ("scan", ""),
            ("plan", ""),
            ("stage", "--to {tmp}/staged"),
            ("rebuild", "--dry-run"),
            ("verify", ""),
            ("before-start", "--dry-run"),
            ("inspect explain", "--producer-id 1"),
            ("inspect transactions", ""),
            ("inspect stats", ""),
            ("inspect records", ""),
            ("cluster source", ""),
        )
    },
    **{
        (verb, "paths"): (f"{verb} {{}} {more}", set())
        for verb, more in (
            ("scan", ""),
            ("plan", ""),
            ("stage", "--to {tmp}/staged"),
            ("rebuild", "--dry-run"),
            ("verify", ""),
            ("before-start", "--dry-run"),
            ("inspect transactions", ""),
            ("inspect stats", ""),
            ("inspect records", ""),
            ("cluster source", ""),
        )
    },
    **{
        (verb, "--metadata"): (f"{verb} --metadata {{}} {more}", set())
        for verb, more in (
            ("plan", LOGS),
            ("stage", f"{LOGS} --to {{tmp}}/staged"),
            ("rebuild", f"{LOGS} --out {{tmp}}/out --dry-run"),
            ("before-start", f"{LOGS} --dry-run"),
            ("inspect transactions", LOGS),
            ("tier audit", REMOTE),
            ("tier metadata", REMOTE),
            ("tier upload", f"{{tmp}} {LOGS} --dry-run"),
            ("follower build", f"{REMOTE} {{tmp}} --topic-partition mixed-0 --dry-run"),
            ("cluster source", LOGS),
        )
    },
    **{
        (verb, "store"): (f"{verb} {{}} {after}", set())
        for verb, after in (
            ("tier inventory", ""),
            ("tier metadata", ""),
            ("tier audit", ""),
            ("tier repair", "--allow-unverified --dry-run"),
            ("tier upload", f"{LOGS} --dry-run"),
            ("follower plan", LOGS),
            ("follower build", "{tmp} --topic-partition mixed-0 --dry-run"),
            ("follower check", LOGS),
            ("follower repair", f"{LOGS} --dry-run"),
        )
    },
    **{
        (verb, "--metadata-log"): (f"{verb} {arguments} --metadata-log {{}}", set())
        for verb, arguments in (
            ("tier inventory", REMOTE),
            ("tier metadata", REMOTE),
            ("inspect records", REMOTE),
            ("tier audit", REMOTE),
            ("tier repair", f"{REMOTE} --dry-run"),
            ("tier upload", f"{{tmp}} {LOGS} --dry-run"),
            ("follower offsets", f"{REMOTE} {LOGS}"),
            ("follower fetch-path", f"{REMOTE} {LOGS}"),
            ("follower plan", f"{REMOTE} {LOGS}"),
            ("follower build", f"{REMOTE} {{tmp}} --topic-partition mixed-0 --dry-run"),
            ("follower check", f"{REMOTE} {LOGS}"),
            ("follower repair", f"{REMOTE} {LOGS} --dry-run"),
        )
    },
    **{
        (verb, "path"): (f"{verb} {words}", set())
        for verb, words in (
            ("tier upload", "{tmp} {} --dry-run"),
            ("follower plan", f"{REMOTE} {{}}"),
            ("follower check", f"{REMOTE} {{}}"),
            ("follower repair", f"{REMOTE} {{}} --dry-run"),
            ("cluster image", "{}"),
            ("cluster history", "{} --broker 1"),
            ("cluster isr", "{}"),
        )
    },
    ("follower build", "directory"): (f"follower build {REMOTE} {{}} --topic-partition mixed-0 --dry-run", set()),
    **{
        (verb, "places"): (f"{verb} {words}", set())
        for verb, words in (("follower offsets", "{}"), ("follower fetch-path", f"{REMOTE} {{}}"))
    },
    **{
        (verb, "--voter"): (f"{verb} {arguments} --voter 9={{}}", set())
        for verb, arguments in (
            ("tier upload", f"{{tmp}} {LOGS} --dry-run --metadata {NODE}"),
            ("cluster image", NODE),
            ("cluster history", f"{NODE} --broker 1"),
            ("cluster source", f"{LOGS} --metadata {NODE}"),
            ("cluster isr", NODE),
        )
    },
    ("tier upload", "--peer"): (f"tier upload {{tmp}} {LOGS} --dry-run --peer {{}}", set()),
    ("cluster source", "--peer"): (f"cluster source {LOGS} --peer {{}}", set()),
    **{(verb, "--config"): ("", set()) for verb in verbs()},
    ("scan", "--config"): (f"scan {LOGS} --config {{}}", {"settings", "empty"}),
    ("tier inventory", "--metadata"): (f"tier inventory {REMOTE} --metadata {{}}", set()),
    ("tier inventory", "--config"): (f"tier inventory {REMOTE} --config {{}}", {"settings", "empty"}),
}
"""By command and option or argument: the words, in which ``{}`` is the file, and the kinds that are taken. One reader has --config."""

OUTPUTS = {
    "--save-json",
    "--metrics",
    "--elections",
    "--out",
    "--to",
    "--save",
    "--results",
    "--cache",
    "--html",
    "--keys",
    "--receipt",
    "--records-file",
}
"""Files and directories that a command writes. What is there already is judged where it is written."""
NO_FILE = {("simulate isr", "scenario")}
"""An argument that is a name."""


def test_each_option_with_a_file_is_tried() -> None:
    expected = set()
    for name, command in verbs().items():
        for each in command.params:
            is_argument = isinstance(each, click.Argument)
            own = str(each.name) if is_argument else max(each.opts, key=len)
            named = {"FILE", "DIR", "PATH", "STORE", "PLAN", "RECEIPT"}
            if is_argument or any(word in (each.metavar or "") for word in named):
                expected.add((name, own))
    outputs = {each for each in expected if each[1] in OUTPUTS} - INPUTS.keys()
    assert expected - outputs - NO_FILE == INPUTS.keys()


def test_settings_are_recognized_by_their_names() -> None:
    assert set(SETTING_NAMES) == set(SETTINGS)


@pytest.mark.parametrize("kind", NOUNS)
def test_each_kind_is_recognized(kind: str, files: dict[str, Path]) -> None:
    found = recognize(str(files[kind]))
    assert found is not None
    assert found.noun == NOUNS[kind]


def test_what_is_not_recognized(tmp_path: Path) -> None:
    """Text of another kind, and what is no file, are left to the reader."""
    log = tmp_path / "server.log"
    log.write_text("INFO started\n")
    empty = tmp_path / f"{5:020d}.snapshot"
    empty.write_bytes(EMPTY_SNAPSHOT)
    assert recognize(str(log)) is None
    assert recognize(str(tmp_path)) is None
    assert recognize(str(tmp_path / "absent")) is None
    assert recognize("README.md") is None
    assert recognize("pyproject.toml") is None
    found = recognize(str(empty))
    assert found is not None
    assert found.noun == "a producer snapshot"


PAIRS = [each for each, (words, _) in INPUTS.items() if words]


@pytest.mark.parametrize("place", PAIRS, ids=" ".join)
def test_a_file_of_the_wrong_kind_is_named(place: tuple[str, str], files: dict[str, Path], tmp_path: Path) -> None:
    words, taken = INPUTS[place]
    wrong = []
    for kind, path in files.items():
        line = words
        for name, value in (("{tmp}", tmp_path), ("{scan}", files["scan-result"]), ("{}", path)):
            line = line.replace(name, shlex.quote(str(value)))
        run = snaprebuild(*shlex.split(line))
        sentence = f"is {NOUNS[kind]}"
        if kind in taken:
            is_right = f"{path}: {sentence}, not" not in run.stderr
            (tmp_path / "page.html").unlink(missing_ok=True)
        else:
            is_refused = (run.exit_code, run.stdout, run.stderr.count("\n")) == (2, "", 1)
            is_named = run.stderr.startswith(f"snaprebuild: {path}: {sentence}")
            is_right = is_refused and is_named and TAKERS.get(kind, "no command takes it") in run.stderr
        if not is_right:
            wrong.append(f"{kind}: {run.exit_code} {run.stderr[:300]}")
    assert not wrong, "\n".join(wrong)
    assert not list(tmp_path.iterdir())
