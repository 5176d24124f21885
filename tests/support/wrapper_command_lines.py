"""Command lines with a CMD, which starts for some of them where the program cannot run: one table for all that read them."""

from snaprebuild.cli.main import verbs
from snaprebuild.cli.verb_command import _BEFORE_THE_VERB

SCRIPT = 'echo "CMD $1"; exit 9'
CMD = ("--", "sh", "-c", SCRIPT, "sh", "a b")
CMD_OUT, CMD_CODE = "CMD a b\n", 9

BEFORE = {name: [name, "before-start"] if count == 2 else [name] for name, count in _BEFORE_THE_VERB.items()}
STARTS = [
    ["before-start", *CMD],
    ["install", *CMD],
    ["--jobs", "2", "before-start", *CMD],
    ["before-start", "--topic", "scan", "--deadline", *CMD],
    ["before-start", "--deadline=x", "--topic", "-x", *CMD],
    ["before-start", "/x", "--", "sh", "-c", SCRIPT, "--fail-closed", "a b"],
    ["before-start", "--", "sh", "-c", SCRIPT, "--", "a b"],
    *([*words, "install", *CMD] for words in BEFORE.values()),
    *([f"{name}=scan", "before-start", *CMD] for name in BEFORE),
]
STARTS_NOT = [
    [],
    ["--"],
    [*CMD],
    ["before-start"],
    ["before-start", "--"],
    ["before-start", "--", ""],
    ["before-start", "--fail-closed", *CMD],
    ["before-start", "--help", *CMD],
    ["install", "-h", *CMD],
    ["install", "--help-all", *CMD],
    ["--version", "before-start", *CMD],
    ["--help", "before-start", *CMD],
    ["--unknown", "before-start", *CMD],
    ["tier", "before-start", *CMD],
    ["--", "before-start", *CMD],
    *([*words, "scan", *CMD] for words in BEFORE.values()),
    *([*words] for words in BEFORE.values()),
    *([*verb.split(), *CMD] for verb in verbs() if verb not in ("before-start", "install")),
]
