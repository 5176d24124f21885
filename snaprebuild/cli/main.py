"""The command: its verbs, and where an error that ends it becomes its exit code.

Verbs are listed here and loaded when they are asked for, so that help is printed at once. Reading is the default; a verb that writes says
so first.
"""

from __future__ import annotations

import functools
import logging
import os
import sys

import click
import typer
from click.exceptions import NoArgsIsHelpError

from snaprebuild import __version__
from snaprebuild.cli.interrupts import INTERRUPTED, begin_ending
from snaprebuild.cli.streams import flush_stdout, print_on_stderr
from snaprebuild.cli.table import printable
from snaprebuild.cli.verb_command import NOTHING, PROGRAM, ListedVerb, VerbCommand, VerbGroup, verbs_of
from snaprebuild.cli.wrapped_command import CallerProcess, WithCommand, start_after_usage_error
from snaprebuild.errors import ReadFailedError, SnaprebuildError, UsageError
from snaprebuild.shell_words import absent_package_text
from snaprebuild.storage.local.process_settings import respect_umask

__all__ = ["app", "main", "verbs"]

HELP = """Checks and rebuilds the producer snapshots of Apache Kafka partitions, outside of
the broker.

Start here. It only reads, and the broker may run:

\b
    snaprebuild scan --server-properties /etc/kafka/server.properties
"""

EPILOG = """\b
Global options, before or after the command (COMMAND --help-all lists them):
  --set NAME=VALUE   A setting of object stores, load, remote storage or Spark
  --config FILE      Such settings in TOML
  -v                 All rows, and the class of each snapshot
  --help-all         All options and settings of a command

\b
Exit codes: 0 done or nothing found; 1 findings; 2 usage; 3 refused; 4 input
damaged; 5 storage failed or outcome unknown; 130 interrupted.
"""

EXAMPLES = {
    "scan": ("scan /var/lib/kafka",),
    "plan": ("plan /var/lib/kafka --save plan.json",),
    "rebuild": ("rebuild --plan plan.json", "rebuild /var/lib/kafka --topic 'orders*' --out /tmp/rebuilt"),
    "stage": ("stage /kafka/logs --to /kafka/staged",),
    "install": ("install --plan /kafka/staged/plan.jsonl --dry-run", "install --plan /kafka/staged/plan.jsonl --deadline 30"),
    "verify": ("verify /var/lib/kafka --output json", "verify --written-by receipt.jsonl"),
    "undo": ("undo", "undo --last --dry-run"),
    "fleet": (
        "fleet broker-1.json broker-2.json broker-3.json",
        "fleet scans/*.json --metadata /kafka --assume rate=200",
    ),
    "report": ("report scan.json --html scan.html", "report scan.json verify.json"),
    "inspect stats": ("inspect stats /var/lib/kafka --top 20", "inspect stats /var/lib/kafka --expiration-ms 21600000"),
    "inspect dump": (
        "inspect dump /kafka/orders-0/00000000000000000000.log --deep",
        "inspect dump /kafka/orders-0/*.snapshot --output json",
    ),
    "inspect records": (
        "inspect records /var/lib/kafka --topic orders --from 2026-11-21",
        "inspect records s3://tiered /kafka/orders-0 --value-format json",
    ),
    "inspect diff": ("inspect diff 00000000000000008231.snapshot rebuilt.snapshot",),
    "inspect explain": (
        "inspect explain /kafka/orders-0/00000000000000008231.snapshot",
        "inspect explain /var/lib/kafka --producer-id 4711 --sequence 15",
    ),
    "inspect transactions": ("inspect transactions /var/lib/kafka",),
    "follower offsets": (
        "follower offsets s3://tiered/kafka /var/lib/kafka --topic orders",
        "follower offsets /kafka/orders-0 --timestamp 1764000000000",
    ),
    "follower fetch-path": ("follower fetch-path s3://tiered /kafka --offset 8231",),
    "follower plan": (
        "follower plan s3://tiered/kafka /kafka --topic orders",
        "follower plan s3://tiered/kafka /kafka --profile kip-1023",
    ),
    "cluster source": (
        "cluster source /var/lib/kafka",
        "cluster source /mnt/old-disk --purpose upload",
    ),
    "tier inventory": (
        "tier inventory s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier inventory /mnt/kafka-tiered-storage --output json",
    ),
    "tier audit": (
        "tier audit s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier audit s3://tiered/kafka --set private_key=rsm.pem",
    ),
    "tier repair": (
        "tier repair s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier repair s3://tiered/kafka --allow-unverified --dry-run",
    ),
    "tier metadata": (
        "tier metadata s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier metadata s3://tiered --log-dir /kafka --log-dirs /kafka",
    ),
    "before-start": (
        "before-start /var/lib/kafka --deadline 300",
        "before-start /data -- kafka-server-start.sh server.properties",
    ),
    "cluster isr": ("cluster isr /var/lib/kafka",),
    "simulate isr": ("simulate isr race", "simulate isr --search --epoch-mode no-epochs"),
    "cluster check": ("cluster check /var/lib/kafka", "cluster check n1 n2 n3 --start-rule strict --output json"),
    "cluster advise": (
        "cluster advise /var/lib/kafka --assume replica=2:8231",
        "cluster advise n1 n2 n3 --assume max_retention_bytes=20971520",
    ),
    "simulate metadata-log": (
        "simulate metadata-log scenario.toml",
        "simulate metadata-log scenario.toml --followers literal",
    ),
    "tier upload": (
        "tier upload s3://tiered/kafka /var/lib/kafka --dry-run",
        "tier upload s3://tiered /kafka/orders-0 --records-file r.jsonl",
    ),
    "follower build": ("follower build s3://tiered /kafka --topic-partition orders-0",),
    "cluster image": (
        "cluster image /var/lib/kafka --topic 'orders*'",
        "cluster image node1 --voter node2 --voter node3",
    ),
    "cluster history": (
        "cluster history /var/lib/kafka --topic-partition orders-0",
        "cluster history /var/lib/kafka --broker 2",
    ),
    "follower check": ("follower check s3://tiered /var/lib/kafka",),
    "follower repair": ("follower repair s3://tiered /var/lib/kafka --set-aside",),
}
"""The last lines of a help: commands that do something useful without a change."""

INTERRUPTED_TEXT = (
    "snaprebuild: interrupted. What was written is whole; run the same command again for the rest, or plan again where a saved "
    "plan wrote in place."
)

# Without rich markup the help needs no import of rich, which alone costs more than the rest.
app = typer.Typer(
    name=PROGRAM,
    cls=VerbGroup,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # recent releases of click suggest by themselves
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _group(text: str) -> typer.Typer:
    """Verbs of two words that share the first."""
    settings = {"help_option_names": ["-h", "--help"]}
    return typer.Typer(cls=VerbGroup, help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=settings)


GROUPS = {
    "inspect": _group("Inspect files, producers and transactions."),
    "tier": _group("Inspect, audit, repair and fill remote storage (tiered storage, KIP-405)."),
    "follower": _group("Inspect and build replicas that start from remote storage (KIP-1023)."),
    "cluster": _group("Read the metadata log and check replicas against it (KRaft, KIP-903, KAFKA-14932)."),
    "simulate": _group("Simulate in-sync replicas (KIP-903) and metadata logs (KAFKA-14932)."),
}


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"snaprebuild {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
) -> None:
    pass


def _add(name: str, short_help: str, changes: str, *, module: str | None = None, cls: type[VerbCommand] = VerbCommand) -> None:
    """Lists the verb whose function has its name; ``module`` is the module of the function if that has another name."""
    function = name.replace(" ", "_").replace("-", "_")
    lines = [f"  snaprebuild {example}" for example in EXAMPLES[name]]
    of_group, _, own_name = name.rpartition(" ")
    epilog = "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *lines])
    verb = ListedVerb(
        name=own_name, module=module or function, function=function, short_help=short_help, changes=changes, epilog=epilog, cls=cls
    )
    VerbGroup.verbs.setdefault(of_group or PROGRAM, {})[own_name] = verb


@functools.cache
def verbs() -> dict[str, click.Command]:
    """Every verb by the words that it is called by, in the order of the help; all of their modules are loaded."""
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    return verbs_of(root)


LOG_DIRECTORIES = "LOG DIRECTORIES"

_add("scan", "Show missing snapshots and what they block", NOTHING)
_add("fleet", "Merge many scans into a restart order", NOTHING)
_add("plan", "Show what rebuild would write, and its cost", NOTHING, module="rebuild")
_add("stage", "Build snapshots while the broker runs", "staging dir", module="rebuild")
_add("install", "Link staged snapshots; broker stopped", LOG_DIRECTORIES, cls=WithCommand)
_add("rebuild", "Build and write snapshots; broker stopped", LOG_DIRECTORIES)
_add("verify", "Compare each snapshot with a replay", NOTHING)
_add("undo", "Take back what a receipt lists", "files of that run")
_add("report", "Write an HTML page from JSON results", "one new file")
_add("before-start", "Rebuild within a deadline, start the broker", LOG_DIRECTORIES, cls=WithCommand)

app.add_typer(GROUPS["inspect"], name="inspect", short_help="dump, records, diff, explain, transactions, stats")
_add("inspect dump", "Print the contents of log directory files", NOTHING)
_add("inspect records", "Show the records of partitions, or export them", NOTHING)
_add("inspect diff", "Show the producers in which snapshots differ", NOTHING)
_add("inspect explain", "Explain a snapshot, or one producer", NOTHING)
_add("inspect transactions", "List open, late and empty transactions", NOTHING)
_add("inspect stats", "Count producers, their memory, and batches", NOTHING)
app.add_typer(GROUPS["tier"], name="tier", short_help="Remote storage: inventory, audit, repair, ...")
_add("tier inventory", "List the copies of segments in remote storage", NOTHING)
_add("tier audit", "Compare remote snapshots with a replay", NOTHING)
_add("tier metadata", "Rebuild __remote_log_metadata from the copies", "a new file or directory")
_add("tier repair", "Replace wrong snapshots in remote storage", "remote storage")
_add("tier upload", "Upload rolled segments with their snapshots", "remote storage")
app.add_typer(GROUPS["follower"], name="follower", short_help="Replicas that start from remote storage")
_add("follower offsets", "Show the leader's answers to ListOffsets", NOTHING)
_add("follower fetch-path", "Show what serves an offset, what deletes it", NOTHING)
_add("follower plan", "Show how an empty follower would start", NOTHING)
_add("follower build", "Build the directory of an empty follower", "a new directory")
_add("follower check", "Find replicas that lost their producer state", NOTHING)
_add("follower repair", "Write the right snapshots into such replicas", LOG_DIRECTORIES)
app.add_typer(GROUPS["cluster"], name="cluster", short_help="image, history, check, source, isr, advise")
_add("cluster image", "Show brokers, topics and partitions", NOTHING)
_add("cluster history", "Show the history of a partition or a broker", NOTHING)
_add("cluster check", "Check whether a metadata log is sound", NOTHING)
_add("cluster source", "Check whether a replica may be the source", NOTHING)
_add("cluster isr", "Check how replicas joined the ISR", NOTHING)
_add("cluster advise", "Show where a metadata log could start", NOTHING)
app.add_typer(GROUPS["simulate"], name="simulate", short_help="isr (KIP-903), metadata-log (KAFKA-14932)")
_add("simulate isr", "Simulate the ISR step by step, with losses", NOTHING)
_add("simulate metadata-log", "Simulate the start offset of a metadata log", NOTHING)


def _complete(instruction: str) -> None:
    from snaprebuild.cli.completion import answer

    typer.echo(answer(instruction, typer.main.get_command(app)))


def _usage_text(error: click.UsageError) -> str:
    """The message of a usage error, and where to look. An unknown option that is the name of a setting is shown as the setting.

    A global option that the verb does not take is refused with the reason.
    """
    from snaprebuild.cli.options.settings import SETTINGS
    from snaprebuild.cli.refused_options import refusal_of

    message = error.format_message()
    if isinstance(error, click.MissingParameter) and error.param is not None and error.param.name == "plan":
        from snaprebuild.cli.file_kinds import STAGED_PLAN

        message = f"{message.rstrip('.')}: the staged plan follows it, as in `install --plan DIR/plan.jsonl`; {STAGED_PLAN.source}"
    where = "snaprebuild" if error.ctx is None else error.ctx.command_path
    option = error.option_name if isinstance(error, click.NoSuchOption) else ""
    setting = option.lstrip("-").replace("-", "_")
    help_option = "--help"
    reason = refusal_of(where.removeprefix(f"{PROGRAM} "), option)
    if reason is not None:
        message = f"{option} does not go with this command: {reason}"
    elif setting in SETTINGS:
        message = f"No such option {option!r}. Did you mean '--set {setting}=VALUE'?"
    elif option and error.ctx is not None:
        from snaprebuild.cli.unknown_option import unknown_option_text

        message, help_option = unknown_option_text(option, error.ctx)
    return f"snaprebuild: {printable(message)} (see {where} {help_option})"


def main() -> None:
    """Entry point: runs the command; an error is printed as one line and becomes its exit code."""
    # A temporary file that a crash leaves must stay readable for the broker, whatever the umask of the caller is.
    umask = os.umask(0o022)
    respect_umask(umask)
    try:
        code = _run(umask)
        if not flush_stdout():
            code = code or SnaprebuildError.exit_code
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print_on_stderr(INTERRUPTED_TEXT)
    if code == UsageError.exit_code:
        start_after_usage_error(sys.argv[1:], umask)
    begin_ending(code)
    sys.exit(code)


def _reading_advice(error: SnaprebuildError) -> str:
    if not isinstance(error, ReadFailedError):
        return ""
    from snaprebuild.storage.local.write_advice import reading_advice  # a start needs none of it

    return reading_advice(error)


def _run(umask: int) -> int:
    """Runs the command; its exit code."""
    try:
        if instruction := os.environ.get("_SNAPREBUILD_COMPLETE"):
            _complete(instruction)
            return 0
        return int(app(prog_name=PROGRAM, standalone_mode=False, obj=CallerProcess(umask)) or 0)
    except SystemExit:
        return 0  # click ends so, with 1, where the reader of a help went away
    except NoArgsIsHelpError as error:
        print_on_stderr(error.format_message())
        return error.exit_code
    except click.UsageError as error:
        print_on_stderr(_usage_text(error))
        return error.exit_code
    except click.Abort:
        return INTERRUPTED
    except SnaprebuildError as error:
        print_on_stderr(f"snaprebuild: {printable(str(error))}{printable(_reading_advice(error))}")
        return error.exit_code
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        print_on_stderr(printable(f"snaprebuild: {place}{error.strerror or error}"))
    except MemoryError:
        print_on_stderr("snaprebuild: out of memory")
    except ModuleNotFoundError as error:
        print_on_stderr(f"snaprebuild: {absent_package_text(error)}")
    except Exception as error:
        # Unforeseen, so the outcome is unknown: never an exit code that means anything else.
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        print_on_stderr(f"snaprebuild: unforeseen {type(error).__name__}: {error} (-vv shows where)")
    return SnaprebuildError.exit_code
