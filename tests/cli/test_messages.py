"""Messages about wrong options and selections, the help about right ones, and amounts with a unit."""

import functools
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from command import snaprebuild
from every_verb import INTERNALS
from manifests import FIXTURES

from snaprebuild.cli.main import verbs
from snaprebuild.cli.options.common import Duration, Size, WholeNumber, as_of_ms
from snaprebuild.cli.options.settings import SETTINGS
from snaprebuild.cli.panels import GLOBAL, PANELS, panel_of
from snaprebuild.cli.verb_command import VerbCommand

COMMANDS = verbs()
VERBS = sorted(COMMANDS)


def test_a_broker_without_log_dirs(tmp_path: Path) -> None:
    """Kafka's default is looked for, and the message says whose it is."""
    properties = tmp_path / "server.properties"
    properties.write_text("broker.id=1\n")
    run = snaprebuild("scan", "--server-properties", properties)
    if os.path.isdir("/tmp/kafka-logs"):
        pytest.skip("only where /tmp/kafka-logs does not exist")
    assert run.exit_code == 2
    assert f"{properties}: has no log.dirs, and Kafka's default /tmp/kafka-logs does not exist" in run.stderr


def test_moments() -> None:
    assert as_of_ms("0") == 0
    assert as_of_ms("1795262400000") == as_of_ms("2026-11-21T12:00:00Z") == as_of_ms("2026-11-21T13:00:00+01:00")
    assert as_of_ms("2026-11-21T12:00:00") == 1_795_262_400_000, "UTC, where no zone is named"
    assert as_of_ms("1970-01-12T13:46:40Z") == 1_000_000_000, "a date is taken as it is"


NASTY = (
    *("", " ", "0", "-1", "1e9", "²", "٧", "\x1b[2J", "a\nb", "caf\udce9", "null", "--", "../..", "/dev/null", "9" * 5000),
    *("[", "%s {0}"),
)


def options_of(verb: str) -> list[click.Option]:
    return [each for each in COMMANDS[verb].params if isinstance(each, click.Option) and "--help" not in each.opts]


VERBS_OF_OPTION: dict[str, str] = {}
"""One verb of each option that has it: an option is the same wherever it is."""
for _verb in VERBS:
    for _option in options_of(_verb):
        if not _option.is_flag and not _option.count:
            VERBS_OF_OPTION.setdefault(_option.opts[0], _verb)


@pytest.mark.full
@pytest.mark.parametrize("option", VERBS_OF_OPTION)
def test_nasty_values_of_every_option(option: str, tmp_path: Path) -> None:
    """Documented exit codes, no word of the language, nothing that a terminal obeys, nothing written where nothing was asked."""
    for value in NASTY:
        run = snaprebuild(VERBS_OF_OPTION[option], "no-such-path", option, value, cwd=tmp_path)
        assert (run.exit_code in (2, 3, 5), run.stdout) == (True, ""), value
        assert not INTERNALS.search(run.stderr), (value, run.stderr)
        assert "\x1b" not in run.stderr
        assert run.stderr.count("\n") == 1
    assert os.listdir(tmp_path) == []


# --- help ------------------------------------------------------------------------------------------------------------------


RISKY = {
    "--impact",
    "--set-aside",
    "--crc",
    "--drop-expired",
    "--allow-election-risk",
    "--accept-topic-id-zero",
    "--allow-unproven",
    "--expiration-ms",
    "--replay-from",
}
RISKY |= {
    *("late_after_ms", "max_timeout_ms", "--cache", "--metadata-log", "--allow-plain", "--allow-unverified"),
    *("--uploader", "voters", "--i-am-the-leader", "--accept-own-log", "--log-start", "--allow-gaps", "--lost-metadata-partition"),
}
"""Options with which a snapshot may become wrong, a way back is lost, or damage is not seen. With some, a live transaction may be taken
for a hanging one, a good copy for an orphan, or a replica that lags for one that has everything."""


@functools.cache
def page_of(verb: str, option: str) -> str:
    """A help page."""
    run = snaprebuild(*verb.split(), option)
    assert run.exit_code == 0
    return run.stdout


@pytest.mark.parametrize("verb", VERBS)
def test_each_option_shows_its_default_and_its_risk(verb: str) -> None:
    for option in options_of(verb):
        assert re.search(r"Default: .+\.$", option.help or ""), option.opts
        assert ("Risk" in (option.help or "")) == (option.opts[0] in RISKY), option.opts
        assert option.help is not None
        assert option.help[0].isupper() or re.match(r"[a-z-]+[:,.]|librdkafka ", option.help), "a value, or a setting of Kafka"
    command = COMMANDS[verb]
    assert isinstance(command, VerbCommand)
    named = {name: SETTINGS[name].help for name in command.settings} | {
        name: each.help for name, each in command.assumptions.items()
    }
    whole = page_of(verb, "--help-all")
    for name, text in named.items():
        assert re.search(r"Default: .+\.$", text), name
        assert ("Risk" in text) == (name in RISKY), name
        assert re.search(rf"^  {name} ", whole, re.MULTILINE), name


def shown_in(page: str) -> list[str]:
    """Options in the panels of a help page, below its description."""
    _, _, panels = page.partition(":\n  -")
    return re.findall(r"^  (?:-v, )?(--[a-z0-9-]+)", f"  -{panels}", re.MULTILINE)


def named_on(verb: str, option: str) -> set[str]:
    """Options that a page names in its description, its examples and the texts of its options; pages wrap such words."""
    command = COMMANDS[verb]
    assert isinstance(command, VerbCommand)
    texts = [command.help or "", command.epilog or ""]
    shown = shown_in(page_of(verb, option))
    for each in options_of(verb):
        if max(each.opts, key=len) in shown:
            text = command.texts[each.name or ""]
            texts.append(text.whole if option == "--help-all" else text.brief)
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", " ".join(texts)))


@pytest.mark.parametrize("verb", VERBS)
def test_a_screen_lists_each_option_that_it_names(verb: str) -> None:
    """Whoever reads an example or a sentence finds its options on the same screen. An option of another command is named with it."""
    everywhere = {name for each in VERBS for one in options_of(each) for name in (*one.opts, *one.secondary_opts)}
    own = {name for each in options_of(verb) for name in each.opts}
    for option in ("--help", "--help-all"):
        named = named_on(verb, option)
        assert (named & own) - {"--help-all"} <= set(shown_in(page_of(verb, option))), (verb, option)
        assert named - own <= everywhere, (verb, option)


def test_brackets_hold_values() -> None:
    """The line of a flag has no value: without the flag nothing happens. Each --dry-run has one default."""
    defaults = set()
    for verb in VERBS:
        page = page_of(verb, "--help")
        for each in options_of(verb):
            name = max(each.opts, key=len)
            if each.is_flag and name in shown_in(page):
                line = re.search(rf"^  {name}\b.*(?:\n {{5,}}.*)*", page, re.MULTILINE)
                assert line is not None
                assert "[" not in line[0], (verb, name)
            if name == "--dry-run":
                defaults.add(str(each.help).rpartition("Default: ")[2])
    assert defaults == {"no."}


def test_the_help_is_short_and_the_whole_one_is_whole() -> None:
    """At most 12 options and 7 in the median; all but the global ones are at most 26 for a verb, and 120 have different names.

    A name has one meaning everywhere (``test_one_vocabulary.py``), which takes more names.
    """
    counts = []
    different = {max(each.opts, key=len) for verb in VERBS for each in options_of(verb)}
    assert len(different) <= 120, sorted(different)
    for verb in VERBS:
        short, whole = (page_of(verb, option) for option in ("--help", "--help-all"))
        counts.append(len(shown_in(short)))
        own = {max(each.opts, key=len): panel_of(max(each.opts, key=len)) for each in options_of(verb)}
        own.pop("--help-all")
        for name, panel in own.items():
            assert (name in shown_in(short)) == (panel in PANELS or name in named_on(verb, "--help")), name
            assert re.search(rf"^  .*{name}\b", whole, re.MULTILINE), name
        assert sum(panel not in GLOBAL for panel in own.values()) <= 26, verb
    assert max(counts) <= 12
    assert sorted(counts)[len(counts) // 2] <= 7


@pytest.mark.parametrize("verb", ["", *VERBS])
def test_the_help_calls_the_command_by_its_name(verb: str) -> None:
    page = page_of(verb, "--help")
    assert page.startswith("Usage: snaprebuild " + (f"{verb} " if verb else "["))
    assert "python" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_without_a_verb_the_help_is_shown() -> None:
    run = snaprebuild()
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith("Usage: snaprebuild [OPTIONS] COMMAND")
    for verb in {each.partition(" ")[0] for each in VERBS}:
        (line,) = [line for line in run.stderr.splitlines() if line.startswith(f"  {verb} ")]
        assert not line.rstrip().endswith("…"), "whole, not cut"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_ends_with_an_example_that_is_right(verb: str) -> None:
    lines = page_of(verb, "--help").rstrip().splitlines()
    examples = lines[max(at for at, line in enumerate(lines) if line.strip() in ("Example:", "Examples:")) + 1 :]
    assert examples
    for example in examples:
        program, *arguments = shlex.split(example)
        assert [program, *arguments[: len(verb.split())]] == ["snaprebuild", *verb.split()]
        del arguments[: len(verb.split())]
        parse: Callable[..., click.Context] = COMMANDS[verb].make_context
        assert parse(verb, arguments).params["output"] is not None


MIXED = FIXTURES / "kafka27-mixed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--topic", "mixed-0"), "no topic matches 'mixed-0' (4 partitions found); did you mean `--topic-partition mixed-0`?"),
        (("--topic", "mix"), "no topic matches 'mix' (4 partitions found); did you mean `--topic mixed`?"),
        (("--topic", "zzz"), "no topic matches 'zzz' (4 partitions found); topics: deleted, logappend, mixed, plain"),
        (("--partition", "7"), "no partition 7 of the selected topics (4 partitions found; partitions of these topics: 0)"),
    ],
)
def test_nothing_is_selected(options: tuple[str, ...], message: str) -> None:
    for verb in ("scan", "plan", "verify", "cluster source"):
        run = snaprebuild(*verb.split(), MIXED, *options)
        assert run.exit_code == 1
        assert f": {message} (nothing-found)\n" in run.stderr, verb


@pytest.mark.parametrize(
    ("kind", "text", "number"),
    [
        (Size, "67108864", 67_108_864),
        (Size, "64MiB", 67_108_864),
        (Size, "1KiB", 1024),
        (Size, "2GiB", 2_147_483_648),
        (Duration, "86400000", 86_400_000),
        (Duration, "1d", 86_400_000),
        (Duration, "12h", 43_200_000),
        (Duration, "15m", 900_000),
        (Duration, "30s", 30_000),
        (Duration, "5ms", 5),
    ],
)
def test_a_unit_multiplies(kind: type[WholeNumber], text: str, number: int) -> None:
    assert kind(1, 2**63 - 1).convert(text, None, None) == number


def test_a_number_may_be_negative_where_that_means_something() -> None:
    """A value of -1 means no limit for log.retention.bytes."""
    assert WholeNumber(-1, 2**63 - 1).convert("-1", None, None) == -1
    with pytest.raises(click.BadParameter, match="expected a number from -1 to 9223372036854775807, found '-2'"):
        WholeNumber(-1, 2**63 - 1).convert("-2", None, None)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *((Size, text) for text in ("64MB", "MiB", "1.5GiB", "-1MiB", "1d", "0KiB", "9999999999TiB")),
        *((Duration, text) for text in ("1w", "1D", "1 d", "1KiB", "999999999999999d", "")),
    ],
)
def test_what_is_none_or_too_large_is_refused(kind: type[WholeNumber], text: str) -> None:
    with pytest.raises(click.BadParameter, match="expected a number from 1 to 9223372036854775807"):
        kind(1, 2**63 - 1).convert(text, None, None)
