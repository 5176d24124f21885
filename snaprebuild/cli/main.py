"""The command: verbs, and the one place where errors become exit codes.

Every heavy import stands inside a command, so that help is printed at once. Reading is the default; a verb that writes says so first.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
from collections.abc import Callable

import click
import typer
from click.exceptions import NoArgsIsHelpError
from typer.core import TyperCommand

from snaprebuild import __version__
from snaprebuild.cli.bootstrap_build import bootstrap_build
from snaprebuild.cli.bootstrap_plan import bootstrap_plan
from snaprebuild.cli.diff import diff
from snaprebuild.cli.dump import dump
from snaprebuild.cli.explain import explain
from snaprebuild.cli.follower_check import follower_check
from snaprebuild.cli.follower_repair import follower_repair
from snaprebuild.cli.hook_run import hook_run
from snaprebuild.cli.install import install
from snaprebuild.cli.isr_check import isr_check
from snaprebuild.cli.isr_simulate import isr_simulate
from snaprebuild.cli.kraft_advise import kraft_advise
from snaprebuild.cli.kraft_check import kraft_check
from snaprebuild.cli.kraft_simulate import kraft_simulate
from snaprebuild.cli.metadata_history import metadata_history
from snaprebuild.cli.metadata_image import metadata_image
from snaprebuild.cli.offsets import offsets
from snaprebuild.cli.rebuild import plan, rebuild
from snaprebuild.cli.scan import scan
from snaprebuild.cli.source_check import source_check
from snaprebuild.cli.stats import stats
from snaprebuild.cli.streams import open_standard_streams, tell
from snaprebuild.cli.table import printable
from snaprebuild.cli.tier_audit import tier_audit
from snaprebuild.cli.tier_inventory import tier_inventory
from snaprebuild.cli.tier_repair import tier_repair
from snaprebuild.cli.tier_upload import tier_upload
from snaprebuild.cli.transactions import transactions
from snaprebuild.cli.undo import undo
from snaprebuild.cli.verify import verify
from snaprebuild.cli.where import where
from snaprebuild.cli.wrapped_command import Inherited, WithCommand
from snaprebuild.errors import SnaprebuildError

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
    "stats": ("stats /var/lib/kafka --top 20", "stats /var/lib/kafka --expiration-ms 21600000"),
    "dump": (
        "dump /var/lib/kafka/orders-0/00000000000000000000.log --deep",
        "dump /var/lib/kafka/orders-0/*.snapshot --output json",
    ),
    "diff": ("diff orders-0/00000000000000008231.snapshot rebuilt.snapshot",),
    "explain": ("explain /var/lib/kafka --producer-id 4711", "explain /var/lib/kafka/orders-0 --producer-id 4711 --sequence 15"),
    "transactions": ("transactions /var/lib/kafka",),
    "offsets": (
        "offsets /var/lib/kafka s3://tiered/kafka --topic orders",
        "offsets /var/lib/kafka/orders-0 --timestamp 1764000000000",
    ),
    "where": ("where /kafka s3://tiered/kafka --topic orders --offset 8231",),
    "bootstrap plan": (
        "bootstrap plan /kafka s3://tiered/kafka --topic orders",
        "bootstrap plan /kafka s3://tiered/kafka --profile kafka-4.3",
    ),
    "source check": (
        "source check /var/lib/kafka",
        "source check /mnt/old-disk --purpose upload --metadata /kafka",
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
    "hook run": (
        "hook run /var/lib/kafka --deadline 300",
        "hook run /data -- kafka-server-start.sh server.properties",
    ),
    "isr check": ("isr check /var/lib/kafka",),
    "isr simulate": ("isr simulate race", "isr simulate --search --mode no-epochs"),
    "kraft check": ("kraft check /var/lib/kafka", "kraft check n1 n2 n3 --followers strict --output json"),
    "kraft advise": (
        "kraft advise /var/lib/kafka --replica 2:8231",
        "kraft advise n1 n2 n3 --max-retention-bytes 20971520",
    ),
    "kraft simulate": ("kraft simulate scenario.toml", "kraft simulate scenario.toml --policy seed --followers literal"),
    "tier upload": (
        "tier upload /var/lib/kafka s3://tiered/kafka --dry-run",
        "tier upload /kafka/orders-0 s3://tiered/kafka --records r.jsonl",
    ),
    "bootstrap build": ("bootstrap build s3://tiered /kafka --topic-partition orders-0",),
    "metadata image": (
        "metadata image /var/lib/kafka --topic 'orders*'",
        "metadata image node1 --voter node2 --voter node3",
    ),
    "metadata history": (
        "metadata history /var/lib/kafka --topic orders --partition 0",
        "metadata history /var/lib/kafka --broker 2",
    ),
    "follower check": ("follower check /var/lib/kafka s3://tiered",),
    "follower repair": ("follower repair /var/lib/kafka s3://tiered --set-aside",),
}
"""What a help ends with: commands that do something useful as they stand."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, as of a process that the signal ended; and after SIGTERM, which asks for the same."""

INTERRUPTED_TEXT = (
    "snaprebuild: interrupted. What was written is whole; run the same command again for the rest, or plan again where a saved "
    "plan wrote in place."
)

# Without rich markup the help needs no import of rich, which alone costs more than the rest.
app = typer.Typer(
    name="snaprebuild",
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
    return typer.Typer(help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=settings)


GROUPS = {
    "": app,
    "tier": _group("Looks after remote storage (tiered storage, KIP-405)."),
    "bootstrap": _group("Starts followers from remote storage (KIP-1023)."),
    "follower": _group("Looks after replicas that started from remote storage."),
    "metadata": _group("Reads what the controllers of a KRaft cluster decided (__cluster_metadata)."),
    "source": _group("Judges whether a replica may be a source."),
    "kraft": _group("Looks after metadata logs (KRaft, KAFKA-14932)."),
    "isr": _group("Looks after in-sync replicas (KIP-903)."),
    "hook": _group("Stands beside a broker: what runs before it starts."),
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


def _add(name: str, verb: Callable[..., None], short_help: str, cls: type[TyperCommand] = TyperCommand) -> None:
    @functools.wraps(verb)
    def run(*args: object, **kwargs: object) -> None:
        try:
            verb(*args, **kwargs)
        except BrokenPipeError as error:
            # Not that of stdout or stderr, of which verbs take care: click would call it 1, which means findings.
            raise SnaprebuildError(f"a pipe broke: {error.strerror}") from error

    lines = [f"  snaprebuild {example}" for example in EXAMPLES[name]]
    of_group, _, own_name = name.rpartition(" ")
    epilog = "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *lines])
    GROUPS[of_group].command(own_name, cls=cls, short_help=short_help, epilog=epilog)(run)


_add("scan", scan, "Reads only: what is missing, and what blocks the upload.")
_add("plan", plan, "Reads only: what rebuild would write, and why.")
_add("rebuild", rebuild, "WRITES the snapshots that are missing.")
_add("install", install, "WRITES what rebuild --stage made, within seconds.")
_add("verify", verify, "Reads only: compares every snapshot with a replay.")
_add("stats", stats, "Reads only: counts producers, what they cost, and batches.")
_add("dump", dump, "Reads only: what stands in files of a log directory.")
_add("diff", diff, "Reads only: in which producers two snapshots differ.")
_add("explain", explain, "Reads only: one producer's state, and why.")
_add("transactions", transactions, "Reads only: open, late and empty transactions.")
_add("offsets", offsets, "Reads only: what the leader would answer to ListOffsets.")
_add("where", where, "Reads only: what serves an offset, and what deletes it.")
app.add_typer(GROUPS["source"], name="source", short_help="Replicas as sources: check.")
_add("source check", source_check, "Reads only: may this replica be a source, rule by rule.")
app.add_typer(GROUPS["isr"], name="isr", short_help="In-sync replicas: check, simulate.")
_add("isr check", isr_check, "Reads only: did replicas join the in-sync ones as they may.")
_add("isr simulate", isr_simulate, "Reads only: who is in sync, and what is lost, step by step.")
app.add_typer(GROUPS["tier"], name="tier", short_help="Remote storage: inventory, audit, repair, upload.")
_add("tier inventory", tier_inventory, "Reads only: the copies of segments in remote storage.")
_add("tier audit", tier_audit, "Reads only: compares snapshots in remote storage with a replay.")
_add("tier repair", tier_repair, "WRITES right snapshots where those in remote storage are wrong.")
_add("tier upload", tier_upload, "WRITES closed segments to remote storage.")
app.add_typer(GROUPS["bootstrap"], name="bootstrap", short_help="Followers that start from remote storage: plan, build.")
_add("bootstrap plan", bootstrap_plan, "Reads only: how an empty follower would start.")
_add("bootstrap build", bootstrap_build, "WRITES the directory of an empty follower.")
app.add_typer(GROUPS["follower"], name="follower", short_help="Replicas that started from it: check, repair.")
_add("follower check", follower_check, "Reads only: replicas that lost their producer state.")
_add("follower repair", follower_repair, "WRITES the right snapshots into such replicas.")
app.add_typer(GROUPS["metadata"], name="metadata", short_help="What the controllers decided: image, history.")
_add("metadata history", metadata_history, "Reads only: how a partition or a broker came to be what it is.")
_add("metadata image", metadata_image, "Reads only: brokers, topics, partitions, as the metadata log has them.")
app.add_typer(GROUPS["kraft"], name="kraft", short_help="Metadata logs of KRaft: check, advise, simulate.")
_add("kraft check", kraft_check, "Reads only: whether a metadata log is sound.")
_add("kraft advise", kraft_advise, "Reads only: where the start of a metadata log would move now.")
_add("kraft simulate", kraft_simulate, "Reads only: how the start of a metadata log would move.")
app.add_typer(GROUPS["hook"], name="hook", short_help="Beside a broker: run, before it starts.")
_add("hook run", hook_run, "WRITES missing snapshots, then starts a broker.", WithCommand)
_add("undo", undo, "REMOVES what a rebuild wrote, by its receipt.")


def main() -> None:
    """Entry point: runs the command; an error is printed as one line and becomes its exit code."""
    # A temporary file that a crash leaves behind must stay readable for the broker, whatever the umask of the caller is.
    umask = os.umask(0o022)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    open_standard_streams()
    try:
        code = app(prog_name="snaprebuild", standalone_mode=False, obj=Inherited(umask))
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
