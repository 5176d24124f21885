"""One vocabulary for all verbs: an option, an argument or a selection is the same wherever it is. The tables are made from the program."""

import json
import shutil
from collections import defaultdict
from pathlib import Path

import click
import pytest
from command import in_json, snaprebuild
from log_dirs import copy_of
from manifests import FIXTURES, REPOSITORY

from snaprebuild.cli.main import verbs
from snaprebuild.cli.panels import GLOBAL
from snaprebuild.cli.refused_options import refusal_of
from snaprebuild.cli.verb_command import VerbCommand

COMMANDS = verbs()
VERBS = sorted(COMMANDS)
MIXED = FIXTURES / "kafka27-mixed"

OTHERWISE = {
    ("inspect explain", "--kafka-release"): "one broker answers one batch, so one release counts: the newest",
    ("inspect dump", "--kafka-release"): "no broker is judged: decoded records look as this release prints them",
    ("install", "--plan"): "required, and a staged plan",
    ("inspect records", "--until"): "the end of a range of records is no part of it, as in Kafka",
    ("inspect records", "--out"): "files of Parquet, in a directory that is new",
    ("inspect records", "--isolation"): "a consumer, and no follower; control records on request",
    ("inspect diff", "--as-of"): "without it every entry counts: a difference that expiry hides must be seen",
    (
        "inspect stats",
        "--crc",
    ): "statistics of all logs are read with headers alone, unless they are asked to prove what they count",
}
"""Where an option has another default than elsewhere, or meaning, with the reason; at most 8."""

ARGUMENTS = {
    (): ("install",),
    ("PATH...",): ("scan", "plan", "stage", "rebuild", "verify", "before-start", "cluster source"),
    ("STORE",): ("tier inventory", "tier metadata", "tier audit", "tier repair"),
    ("STORE", "PATH"): ("tier upload", "follower plan", "follower check", "follower repair"),
    ("[STORE] PATH",): ("follower offsets", "follower fetch-path"),
    ("[STORE] PATH...",): ("inspect records",),
    ("STORE", "DIR"): ("follower build",),
    ("DIR",): ("cluster image", "cluster history", "cluster isr"),
    ("DIR...",): ("cluster check",),
    ("[DIR]", "[OTHER...]"): ("cluster advise",),
    ("FILE...",): ("report", "inspect dump"),
    ("A B",): ("inspect diff",),
    ("SCAN.json...",): ("fleet",),
    ("[RECEIPT]",): ("undo",),
    ("SCENARIO",): ("simulate metadata-log",),
    ("[SCENARIO]",): ("simulate isr",),
}
"""PATH is a partition directory, a log directory or one above; DIR is a directory of one kind, which the verb names; STORE comes first."""

SELECTION = ("--topic", "--partition", "--topic-partition")
WITHOUT_SELECTION = {
    **dict.fromkeys(("inspect dump", "inspect diff"), "FILE is the selection"),
    **dict.fromkeys(("fleet", "report"), "a document has what it was made for"),
    "undo": "a run is taken back as a whole",
    "install": "the staged plan is the selection, with one SHA-256 for --require-plan",
    **dict.fromkeys(("cluster check", "cluster advise"), "a metadata log is judged as a whole"),
    "cluster isr": "an image with a change that is left out would be another one",
    **dict.fromkeys(("simulate isr", "simulate metadata-log"), "there are no partitions of a broker"),
}

WITHOUT_TIME = {
    "scan": "it shows the disk as it is, and loads no snapshot",
    **dict.fromkeys(("before-start", "install"), "the broker starts now; `stage` and `rebuild` take the time"),
    "undo": "files are compared by their bytes",
    **dict.fromkeys(("fleet", "report"), "the time is that of the documents"),
    **dict.fromkeys(("inspect dump", "inspect records"), "nothing is judged"),
    **dict.fromkeys(("follower offsets", "follower fetch-path", "follower plan"), "offsets do not depend on when producers expire"),
    "tier metadata": "copies are listed, and no snapshot is judged",
    **dict.fromkeys(
        ("cluster image", "cluster history", "cluster check", "cluster isr", "cluster source"), "records have their own times"
    ),
    **dict.fromkeys(("simulate isr", "simulate metadata-log"), "a simulation has a clock of its own"),
}
"""Verbs without --as-of, with the reason."""


WITHOUT_RECEIPT = {
    "stage": "it writes below --to, where the staged plan names each file; `install` leaves the receipt",
    "tier upload": "a broker may read a copy as soon as it knows of it, so that no `undo` may remove it: the help says so",
    "undo": "it takes back, and records that in the receipt",
}
"""Verbs with --dry-run, which write, that leave no receipt, with the reason."""

WITH_ENGINE = ("scan", "plan", "rebuild", "verify", "tier audit", "inspect records")
WITHOUT_ENGINE = {
    **dict.fromkeys(("stage", "install", "before-start"), "the host of the broker does it: links lead to its files, and it waits"),
    "inspect explain": "one producer of a partition, or one snapshot",
    **dict.fromkeys(("inspect transactions", "inspect stats"), "on Spark both are questions in SQL (docs/reference/spark-sql.md)"),
    "tier repair": "`tier audit --engine spark` reads before, and the repair takes its document or its ledger",
    **dict.fromkeys(
        ("follower offsets", "follower plan", "follower build", "follower check", "follower repair"),
        "the directories of one broker, and the copies next to one offset of each partition",
    ),
    "cluster source": "the ends of a few replicas are compared",
}
"""Verbs that read whole segments without --engine, with the reason."""


def options_of(verb: str) -> dict[str, click.Option]:
    return {max(each.opts, key=len): each for each in COMMANDS[verb].params if isinstance(each, click.Option)}


def form_of(verb: str, name: str) -> tuple[object, ...]:
    """All that a person sees of an option."""
    option = options_of(verb)[name]
    command = COMMANDS[verb]
    assert isinstance(command, VerbCommand)
    kind = option.type
    values = (
        tuple(kind.choices) if isinstance(kind, click.Choice) else (type(kind), vars(kind).get("least"), vars(kind).get("most"))
    )
    return (
        tuple(option.opts),
        option.metavar,
        values,
        option.multiple,
        option.is_flag,
        str(option.default),
        command.texts[option.name or ""],
    )


def test_verbs_that_write_leave_a_receipt_for_undo_or_have_a_reason() -> None:
    writing = {verb for verb in VERBS if "--dry-run" in options_of(verb)}
    with_receipt = {verb for verb in VERBS if "--receipt" in options_of(verb)}
    assert writing - with_receipt == set(WITHOUT_RECEIPT)
    assert with_receipt <= writing
    for verb in with_receipt:
        assert f"`{verb}`" in (COMMANDS["undo"].help or ""), "the help of `undo` names each verb whose receipt it takes"
    assert "There is no receipt, and no `undo`" in (COMMANDS["tier upload"].help or "")


def test_verbs_that_read_whole_segments_have_an_engine_or_a_reason() -> None:
    with_engine = [verb for verb in VERBS if "--engine" in options_of(verb)]
    assert sorted(WITH_ENGINE) == with_engine
    reading = {verb for verb in VERBS if "--jobs" in options_of(verb)}
    assert reading - set(WITH_ENGINE) == set(WITHOUT_ENGINE)
    guide = (REPOSITORY / "docs" / "guides" / "spark.md").read_text()
    named = "`scan`, `plan`, `rebuild`, `verify`, `tier audit` and `inspect records --out`"
    assert f"`--engine spark` runs {named} as Spark jobs.\n" in guide
    assert "in SQL](../reference/spark-sql.md): `inspect transactions` and `inspect stats` have no `--engine`." in guide


def test_an_option_is_the_same_everywhere() -> None:
    """Metavar, type, values, default and text. Two names with one text would be two words for one thing."""
    assert len(OTHERWISE) <= 8
    forms: dict[str, dict[tuple[object, ...], list[str]]] = defaultdict(lambda: defaultdict(list))
    names: dict[object, set[str]] = defaultdict(set)
    for verb in VERBS:
        for name in options_of(verb):
            form = form_of(verb, name)
            names[form[-1]].add(name)
            if (verb, name) not in OTHERWISE:
                forms[name][form].append(verb)
    assert {name: list(found.values()) for name, found in forms.items() if len(found) > 1} == {}
    assert [each for each in names.values() if len(each) > 1] == []
    for verb, name in OTHERWISE:
        (form,) = forms[name]
        assert form_of(verb, name) != form, f"{verb} {name} is no exception any more"


def test_arguments_have_the_same_names_and_order() -> None:
    found = defaultdict(list)
    for verb in VERBS:
        found[tuple(each.metavar or each.name for each in COMMANDS[verb].params if isinstance(each, click.Argument))].append(verb)
    inspected = {"inspect explain", "inspect transactions", "inspect stats"}
    expected = {each: sorted({*of, *(inspected if each == ("PATH...",) else ())}) for each, of in ARGUMENTS.items() if of}
    assert {each: sorted(of) for each, of in found.items()} == expected


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_selects_partitions_with_the_same_options(verb: str) -> None:
    taken = [name for name in SELECTION if name in options_of(verb)]
    assert taken == ([] if verb in WITHOUT_SELECTION else list(SELECTION))


def selected(verb: str, *words: object) -> list[str]:
    """The names of the partitions in the document of a verb."""
    run = in_json(verb, *words)
    assert run.exit_code in (0, 1), run.stderr
    return sorted(f"{each['topic']}-{each['partition']}" for each in run.document["partitions"])


def test_a_named_partition_is_taken_besides_those_of_patterns() -> None:
    for verb in ("scan", "verify", "inspect transactions"):
        assert selected(verb, MIXED, "--topic-partition", "plain-0") == ["plain-0"]
        assert selected(verb, MIXED, "--topic", "m*", "--topic-partition", "plain-0") == ["mixed-0", "plain-0"]
        assert selected(verb, MIXED, "--topic", "mixed", "--topic", "plain", "--partition", 0) == ["mixed-0", "plain-0"]


def test_a_named_partition_that_is_absent_is_reported() -> None:
    """Also next to one that is there: a mistyped name must not look like health."""
    run = snaprebuild("scan", MIXED, "--topic-partition", "mixd-0")
    assert (run.exit_code, "no partition 'mixd-0'; did you mean `--topic-partition mixed-0`?" in run.stderr) == (1, True)
    run = in_json("verify", FIXTURES / "kafka4-mixed" / "logs", "--topic-partition", "mixed-0", "--topic-partition", "mixed-9")
    assert (run.exit_code, run.codes["nothing-found"]) == (1, 1)
    assert "no partition 'mixed-9'" in run.messages("nothing-found")


TIME = ("--as-of", "2026-11-21T12:00:00Z")
ABSENT = {
    **dict.fromkeys(("scan", "inspect transactions", "inspect stats", "inspect records"), ("{logs}",)),
    "inspect explain": ("{logs}", "--producer-id", 0, *TIME),
    **dict.fromkeys(("plan", "rebuild", "before-start"), ("{logs}",)),
    "stage": ("{logs}", "--to", "{tmp}/staged"),
    "verify": ("{logs}", *TIME),
    "cluster source": ("{logs}",),
    **dict.fromkeys(("tier inventory", "tier metadata", "tier audit"), ("{store}",)),
    "tier repair": ("{store}", "--dry-run"),
    "tier upload": ("{tmp}/new-store", "{logs}", "--i-am-the-leader", *TIME),
    **dict.fromkeys(("follower plan", "follower check", "follower fetch-path"), ("{store}", "{logs}")),
    "follower repair": ("{store}", "{logs}", "--dry-run"),
    "follower offsets": ("{store}", "{logs}"),
    **dict.fromkeys(("cluster image", "cluster history"), ("{node}",)),
}
"""Arguments of each verb that reads several partitions."""
ONE_PARTITION = {"follower build": ("{store}", "{tmp}/new", "--dry-run", *TIME)}
"""Verbs about one partition: two names are refused, so that an absent one is no finding."""


def absent_words(of: tuple[object, ...], tmp_path: Path) -> list[object]:
    """Arguments on a copy of a log directory and its store."""
    copied = Path(shutil.copytree(FIXTURES / "tiered-local", tmp_path / "copied"))
    places = {
        "logs": copied / "logs",
        "store": copied / "remote",
        "tmp": tmp_path,
        "node": FIXTURES / "kraft-cluster3" / "node1",
    }
    return [each.format(**places) if isinstance(each, str) else each for each in of]


@pytest.mark.parametrize("verb", [each for each in VERBS if each not in WITHOUT_SELECTION])
def test_an_absent_name_next_to_one_that_is_there_is_reported_by_every_verb(verb: str, tmp_path: Path) -> None:
    """The partition that is there is in the result all the same, and the first line does not say that nothing was read."""
    there = "orders-1" if verb in ("cluster image", "cluster history") else "mixed-0"
    names = ("--topic-partition", there, "--topic-partition", "nope-0")
    if verb in ONE_PARTITION:
        refused = snaprebuild(*verb.split(), *absent_words(ONE_PARTITION[verb], tmp_path), *names)
        assert (refused.exit_code, "no partition 'nope-0'" in refused.stderr) == (2, True)
        return
    words = absent_words(ABSENT[verb], tmp_path)
    run = in_json(verb, *words, *names)
    assert run.exit_code not in (0, 2), run.stderr
    assert run.codes["nothing-found"] == 1
    assert "no partition 'nope-0'" in run.messages("nothing-found")
    if verb == "tier repair":
        assert run.document["counts"]["wrong"] == 0  # the copies that are right are not listed
    else:
        assert there.rpartition("-")[0] in json.dumps(run.document)
    table = snaprebuild(*verb.split(), *absent_words(ABSENT[verb], tmp_path / "table"), *names)
    assert "No partition was read" not in table.stdout
    assert "no partition 'nope-0'" in table.stdout + table.stderr


def test_the_image_says_which_part_of_a_selection_is_absent() -> None:
    node = FIXTURES / "kraft-cluster3" / "node1"
    run = snaprebuild("cluster", "image", node, "--topic-partition", "orders-99")
    assert (run.exit_code, "no partition 'orders-99'; did you mean `--topic-partition orders-" in run.stderr) == (2, True)
    run = snaprebuild("cluster", "image", node, "--topic", "orders", "--partition", 99)
    assert (run.exit_code, "no partition 99 of the selected topics" in run.stderr) == (2, True)


@pytest.mark.parametrize("words", ["plan", "check", "repair --dry-run", "offsets", "fetch-path", "build --topic mixed --dry-run"])
def test_a_store_and_a_path_that_were_swapped_are_told_apart(words: str, tmp_path: Path) -> None:
    place = FIXTURES / "tiered-local"
    verb, *options = words.split()
    path = tmp_path if verb == "build" else place / "remote"
    run = snaprebuild("follower", verb, place / "logs", path, *options)
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.endswith("logs: is a log directory: STORE comes before PATH\n")


def test_a_store_may_have_log_directories_below_it() -> None:
    run = snaprebuild("tier", "inventory", FIXTURES / "tiered-local", "--output", "json")
    assert run.exit_code == 0
    assert json.loads(run.stdout)["partitions"]


def test_an_upload_takes_patterns_and_names_together(tmp_path: Path) -> None:
    logs = FIXTURES / "kafka4-mixed" / "logs"
    words = ("--topic", "deleted", "--topic-partition", "mixed-0", "--i-am-the-leader", "--dry-run", *TIME)
    assert {"deleted", "mixed"} == {each["topic"] for each in in_json("tier upload", tmp_path, logs, *words).document["partitions"]}


@pytest.mark.parametrize("verb", ["verify", "tier upload {}"])
def test_where_every_name_is_absent_the_next_command_shows_what_is_there(verb: str, tmp_path: Path) -> None:
    run = snaprebuild(*verb.format(tmp_path).split(), MIXED, "--topic-partition", "nope-0")
    assert run.exit_code == 1
    assert run.stdout.startswith("No partition was read.")
    assert "Next: snaprebuild scan " in run.stdout


def test_a_scan_of_named_partitions_is_not_whole_to_the_fleet(tmp_path: Path) -> None:
    snaprebuild("scan", MIXED, "--topic-partition", "mixed-0", "--save-json", tmp_path / "scan.json")
    run = snaprebuild("fleet", tmp_path / "scan.json")
    assert "it covers selected topics or partitions only" in run.stdout + run.stderr


def test_copies_and_records_are_selected_like_directories() -> None:
    store, node = FIXTURES / "aiven-layout" / "plain" / "store", FIXTURES / "kraft-cluster3" / "node2"
    assert len(set(selected("tier inventory", store))) > 1
    assert set(selected("tier inventory", store, "--topic-partition", "deleted-0")) == {"deleted-0"}
    run = snaprebuild("tier inventory", store, "--topic", "nope")
    assert (run.exit_code, "has no copy of a segment that the selection takes" in run.stderr) == (2, True)
    (topic,) = in_json("cluster image", node, "--topic-partition", "orders-1").document["topics"]
    assert (topic["topic"], [each["partition"] for each in topic["partitions"]]) == ("orders", [1])
    assert set(selected("cluster history", node, "--topic", "ord*", "--partition", 1)) == {"orders-1"}


def test_a_start_prepares_the_selected_partitions_alone(tmp_path: Path) -> None:
    logs = copy_of("kafka27-mixed", tmp_path)
    run = in_json("before-start", logs, "--topic-partition", "mixed-0", "--dry-run")
    assert [each["topic"] for each in run.document["partitions"]] == ["mixed"]
    assert (run.document["topics"], run.document["topic_partitions"]) == ([], ["mixed-0"])
    run = in_json("before-start", logs, "--topic", "mixed", "--partition", 3, "--dry-run")
    assert (run.document["partitions"], run.document["partition_numbers"]) == ([], [3])


def test_one_partition_is_asked_for_and_candidates_are_named(tmp_path: Path) -> None:
    store = FIXTURES / "aiven-layout" / "plain" / "store"
    run = snaprebuild("follower build", store, tmp_path, "--topic", "*")
    assert run.exit_code == 2
    assert "a follower is built for one partition, and 3 are selected: deleted-0, logappend-0, mixed-0" in run.stderr
    run = snaprebuild("follower build", store, tmp_path, "--topic", "nope")
    assert (run.exit_code, "none is selected; there are deleted-0, logappend-0, mixed-0" in run.stderr) == (2, True)
    built = FIXTURES / "tiered-local" / "remote"
    by_pattern, by_name = (
        in_json("follower build", built, tmp_path, *words, "--dry-run", "--as-of", "2026-11-21T12:00:00Z")
        for words in (("--topic", "mix*"), ("--topic-partition", "mixed-0"))
    )
    assert by_pattern.exit_code == by_name.exit_code
    assert by_pattern.document | {"next_command": None} == by_name.document | {"next_command": None}


def test_a_dump_is_saved_like_any_document(tmp_path: Path) -> None:
    """The lines are those of --output json, also where the reader of the table goes away, and a second run replaces them."""
    files = sorted((FIXTURES / "kafka27-mixed" / "logs" / "mixed-0").glob("*.snapshot"))
    for _ in range(2):
        shown = snaprebuild("inspect dump", *files, "--save-json", tmp_path / "dump.jsonl")
        assert shown.exit_code == 0
    assert shown.stdout == snaprebuild("inspect dump", *files).stdout
    assert (tmp_path / "dump.jsonl").read_text() == snaprebuild("inspect dump", *files, "--output", "json").stdout


def test_a_judgement_that_depends_on_the_time_can_be_asked_for_another_time() -> None:
    assert {verb for verb in VERBS if "--as-of" not in options_of(verb)} == set(WITHOUT_TIME)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("option", ["--impact", *GLOBAL["Global"]])
def test_a_global_option_is_taken_or_refused_with_a_reason(verb: str, option: str) -> None:
    """Exactly one of the two."""
    reason = refusal_of(verb, option)
    assert (option in options_of(verb)) == (reason is None)
    if reason is not None:
        run = snaprebuild(*verb.split(), option, "x")
        assert (run.exit_code, run.stdout) == (2, "")
        assert run.stderr.startswith(f"snaprebuild: {option} does not go with this command: {reason} (see snaprebuild {verb}")
