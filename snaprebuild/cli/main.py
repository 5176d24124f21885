"""The command: verbs, and the one place where errors become exit codes.

Verbs are listed here and loaded when they are asked for, so that help is printed at once. Reading is the default; a verb that writes says
so first.
"""

from __future__ import annotations

import logging
import os
import signal
import sys

import click
import typer
from click.exceptions import NoArgsIsHelpError
from typer.core import TyperCommand

from snaprebuild import __version__
from snaprebuild.cli.streams import open_standard_streams, tell
from snaprebuild.cli.table import printable
from snaprebuild.cli.verb_group import Verb, VerbGroup
from snaprebuild.cli.wrapped_command import Inherited, WithCommand
from snaprebuild.errors import SnaprebuildError
from snaprebuild.storage.local.document_mode import respect_umask

__all__ = ["app", "main"]

CONTRACT = """Rebuild, prove and check the producer snapshots of Apache Kafka log directories.

\b
The contract:
1. Reading is the default. A verb that writes says so in its first help line;
   --dry-run shows the same without writing.
2. A saved plan carries the identity of its inputs and is refused when the
   disk has moved on.
3. An existing file is never replaced. A proven wrong one is moved aside only
   with --set-aside. Only tier repair replaces what it has read, if unchanged.
4. What was written is read back and checked before it gets its name.
5. Every guess is printed with its reason and counted.
6. Exit codes: 0 clean or done; 1 findings; 2 usage; 3 refused; 4 input
   damaged; 5 storage failed or outcome unknown; 130 interrupted.
7. stdout is the result, stderr is the story.
8. A snapshot takes effect when the broker next loads the log, at its start.
   Never before.
"""

EXAMPLES = {
    "scan": ("scan /var/lib/kafka",),
    "plan": ("plan /var/lib/kafka --save plan.json",),
    "rebuild": ("rebuild --plan plan.json", "rebuild /var/lib/kafka --topic 'orders*' --out /tmp/rebuilt"),
    "install": ("install /kafka/staged/plan.jsonl --dry-run", "install /kafka/staged/plan.jsonl --deadline 30"),
    "verify": ("verify /var/lib/kafka --output json", "verify --receipt receipt.jsonl"),
    "undo": ("undo receipt.jsonl --dry-run",),
    "fleet": (
        "fleet broker-1.json broker-2.json broker-3.json",
        "fleet scans/*.json --metadata /kafka --rate 200",
    ),
    "report": ("report scan.json --html scan.html", "report scan.json verify.json"),
    "inspect stats": ("inspect stats /var/lib/kafka --top 20", "inspect stats /var/lib/kafka --expiration-ms 21600000"),
    "inspect dump": (
        "inspect dump /kafka/orders-0/00000000000000000000.log --deep",
        "inspect dump /kafka/orders-0/*.snapshot --output json",
    ),
    "inspect diff": ("inspect diff 00000000000000008231.snapshot rebuilt.snapshot",),
    "inspect explain": (
        "inspect explain /var/lib/kafka --producer-id 4711",
        "inspect explain /kafka/orders-0 --producer-id 4711 --sequence 15",
    ),
    "inspect transactions": ("inspect transactions /var/lib/kafka",),
    "follower offsets": (
        "follower offsets /var/lib/kafka s3://tiered/kafka --topic orders",
        "follower offsets /kafka/orders-0 --timestamp 1764000000000",
    ),
    "follower fetch-path": ("follower fetch-path /kafka s3://tiered --offset 8231",),
    "follower plan": (
        "follower plan /kafka s3://tiered/kafka --topic orders",
        "follower plan /kafka s3://tiered/kafka --profile kafka-4.3",
    ),
    "cluster source": (
        "cluster source /var/lib/kafka",
        "cluster source /mnt/old-disk --purpose upload --metadata /kafka",
    ),
    "tier inventory": (
        "tier inventory s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier inventory /mnt/kafka-tiered-storage --output json",
    ),
    "tier audit": (
        "tier audit s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier audit s3://tiered/kafka --private-key rsm.pem",
    ),
    "tier repair": (
        "tier repair s3://tiered/kafka --metadata-log /var/lib/kafka",
        "tier repair s3://tiered/kafka --undo tier-undo.jsonl",
    ),
    "before-start": (
        "before-start /var/lib/kafka --deadline 300",
        "before-start /data -- kafka-server-start.sh server.properties",
    ),
    "cluster isr": ("cluster isr /var/lib/kafka",),
    "simulate isr": ("simulate isr race", "simulate isr --search --mode no-epochs"),
    "cluster check": ("cluster check /var/lib/kafka", "cluster check n1 n2 n3 --followers strict --output json"),
    "cluster advise": (
        "cluster advise /var/lib/kafka --replica 2:8231",
        "cluster advise n1 n2 n3 --max-retention-bytes 20971520",
    ),
    "simulate metadata-log": (
        "simulate metadata-log scenario.toml",
        "simulate metadata-log scenario.toml --followers literal",
    ),
    "tier upload": (
        "tier upload /var/lib/kafka s3://tiered/kafka --dry-run",
        "tier upload /kafka/orders-0 s3://tiered/kafka --records r.jsonl",
    ),
    "follower build": ("follower build s3://tiered /kafka --topic-partition orders-0",),
    "cluster image": (
        "cluster image /var/lib/kafka --topic 'orders*'",
        "cluster image node1 --voter node2 --voter node3",
    ),
    "cluster history": (
        "cluster history /var/lib/kafka --topic orders --partition 0",
        "cluster history /var/lib/kafka --broker 2",
    ),
    "follower check": ("follower check /var/lib/kafka s3://tiered",),
    "follower repair": ("follower repair /var/lib/kafka s3://tiered --set-aside",),
}
"""What a help ends with: commands that do something useful as they stand."""

PROGRAM = "snaprebuild"

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a process that the signal ended; and after SIGTERM, which asks for the same."""

INTERRUPTED_TEXT = (
    "snaprebuild: interrupted. What was written is whole; run the same command again for the rest, or plan again where a saved "
    "plan wrote in place."
)

# Without rich markup the help needs no import of rich, which alone costs more than the rest.
app = typer.Typer(
    name=PROGRAM,
    cls=VerbGroup,
    help=CONTRACT,
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
    "inspect": _group("Shows what files, producers and transactions are."),
    "tier": _group("Looks after remote storage (tiered storage, KIP-405)."),
    "follower": _group("Looks after replicas that start from remote storage (KIP-1023)."),
    "cluster": _group("Reads what the controllers decided, and judges replicas and metadata logs (KRaft, KIP-903, KAFKA-14932)."),
    "simulate": _group("Plays in-sync replicas (KIP-903) and metadata logs (KAFKA-14932)."),
}


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"snaprebuild {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
) -> None:
    pass


def _add(name: str, short_help: str, *, module: str | None = None, cls: type[TyperCommand] = TyperCommand) -> None:
    """A verb, which is a function of its name, in a module of its name or of another."""
    function = name.replace(" ", "_").replace("-", "_")
    lines = [f"  snaprebuild {example}" for example in EXAMPLES[name]]
    of_group, _, own_name = name.rpartition(" ")
    epilog = "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *lines])
    verb = Verb(own_name, module or function, function, short_help, epilog, cls)
    VerbGroup.verbs.setdefault(of_group or PROGRAM, {})[own_name] = verb


_add("scan", "Reads only: what is missing, and what blocks the upload.")
_add("fleet", "Reads only: the scans of many brokers as one answer.")
_add("plan", "Reads only: what rebuild would write, and why.", module="rebuild")
_add("rebuild", "WRITES the snapshots that are missing.")
_add("install", "WRITES what rebuild --stage made, within seconds.")
_add("verify", "Reads only: compares every snapshot with a replay.")
_add("undo", "REMOVES what a rebuild wrote, by its receipt.")
_add("report", "Reads only: a page (HTML) of what other verbs found.")
app.add_typer(GROUPS["inspect"], name="inspect", short_help="Files and producers: dump, diff, explain, transactions, stats.")
_add("inspect dump", "Reads only: what stands in files of a log directory.")
_add("inspect diff", "Reads only: in which producers two snapshots differ.")
_add("inspect explain", "Reads only: one producer's state, and why.")
_add("inspect transactions", "Reads only: open, late and empty transactions.")
_add("inspect stats", "Reads only: counts producers, what they cost, and batches.")
app.add_typer(GROUPS["tier"], name="tier", short_help="Remote storage: inventory, audit, repair, upload.")
_add("tier inventory", "Reads only: the copies of segments in remote storage.")
_add("tier audit", "Reads only: compares snapshots in remote storage with a replay.")
_add("tier repair", "WRITES right snapshots where those in remote storage are wrong.")
_add("tier upload", "WRITES closed segments to remote storage.")
app.add_typer(GROUPS["follower"], name="follower", short_help="Replicas that start from it: offsets, plan, build, check, ...")
_add("follower offsets", "Reads only: what the leader would answer to ListOffsets.")
_add("follower fetch-path", "Reads only: what serves an offset, and what deletes it.")
_add("follower plan", "Reads only: how an empty follower would start.")
_add("follower build", "WRITES the directory of an empty follower.")
_add("follower check", "Reads only: replicas that lost their producer state.")
_add("follower repair", "WRITES the right snapshots into such replicas.")
app.add_typer(GROUPS["cluster"], name="cluster", short_help="Metadata log: image, history, check, source, isr, advise.")
_add("cluster image", "Reads only: brokers, topics, partitions, as the metadata log has them.")
_add("cluster history", "Reads only: how a partition or a broker came to be what it is.")
_add("cluster check", "Reads only: whether a metadata log is sound.")
_add("cluster source", "Reads only: may this replica be a source, rule by rule.")
_add("cluster isr", "Reads only: did replicas join the in-sync ones as they may.")
_add("cluster advise", "Reads only: where the start of a metadata log would move now.")
app.add_typer(GROUPS["simulate"], name="simulate", short_help="Simulations: isr, metadata-log.")
_add("simulate isr", "Reads only: who is in sync, and what is lost, step by step.")
_add("simulate metadata-log", "Reads only: how the start of a metadata log would move.")
_add("before-start", "WRITES missing snapshots, then starts a broker.", cls=WithCommand)


def _complete(instruction: str) -> None:
    from snaprebuild.cli.completion import answer

    typer.echo(answer(instruction, typer.main.get_command(app)))


def main() -> None:
    """Entry point: runs the command; an error is printed as one line and becomes its exit code."""
    # A temporary file that a crash leaves behind must stay readable for the broker, whatever the umask of the caller is.
    umask = os.umask(0o022)
    respect_umask(umask)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    open_standard_streams()
    try:
        if instruction := os.environ.get("_SNAPREBUILD_COMPLETE"):
            _complete(instruction)
            return
        code = app(prog_name=PROGRAM, standalone_mode=False, obj=Inherited(umask))
    except SystemExit:
        code = 0  # click ends so, with 1, where the reader of a help went away
    except NoArgsIsHelpError as error:
        tell(error.format_message())
        sys.exit(error.exit_code)
    except click.UsageError as error:
        where = "snaprebuild" if error.ctx is None else error.ctx.command_path
        tell(f"snaprebuild: {printable(error.format_message())} ({where} --help tells more)")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except SnaprebuildError as error:
        tell(f"snaprebuild: {printable(str(error))}")
        sys.exit(error.exit_code)
    except OSError as error:
        place = "" if error.filename is None else f"{error.filename}: "
        tell(printable(f"snaprebuild: {place}{error.strerror or error}"))
        sys.exit(SnaprebuildError.exit_code)
    except MemoryError:
        tell("snaprebuild: out of memory")
        sys.exit(SnaprebuildError.exit_code)
    except Exception as error:
        # Nobody foresaw it, so nothing is known of the outcome: never an exit code that says otherwise.
        if logging.getLogger().isEnabledFor(logging.DEBUG):
            raise
        tell(f"snaprebuild: unforeseen {type(error).__name__}: {error} (-vv shows where)")
        sys.exit(SnaprebuildError.exit_code)
    if code == INTERRUPTED:
        tell(INTERRUPTED_TEXT)
    sys.exit(code)
