"""The commands of the guides for operators: every line of them parses, and what needs no real broker runs as it is typed there.

On real brokers `scripts/demo/install_scenario.py` runs them.
"""

import re
import secrets
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from command import Run, snaprebuild
from log_dirs import copy_of, snapshots_in, truth
from manifests import FIXTURES
from other_process import live_broker
from runbook_page import BY_HAND, EVERY, block, blocks, ours
from staged_logs import AS_OF, bases_of, running

from snaprebuild.cli.main import app

pytestmark = pytest.mark.full

KAFKA = {f"$K/bin/kafka-{name}.sh" for name in ("get-offsets", "configs")} | {
    "kafka-reassign-partitions.sh",
    "kafka-leader-election.sh",
}
OTHERS = {*KAFKA, "kubectl", "rm", "jq", "plan=/var/lib/kafka/data-0/staged/plan.jsonl"}
"""Other commands that are typed; the demonstrations run the tools of Kafka."""


class Parsed(Exception):  # noqa: N818
    """A command line was understood as far as the call of its verb."""


def test_every_command_line_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(self: click.Command, context: click.Context) -> None:
        if not isinstance(self, click.Group):
            raise Parsed(context.command_path)

    monkeypatch.setattr(click.Command, "invoke", stop)  # nothing is carried out
    lines = [line for each in blocks(EVERY) if each.language in ("sh", "yaml") for line in each.lines]
    inline = [each for each in re.findall(r"`(snaprebuild [^`]+)`", BY_HAND) if "..." not in each]
    found = [words for line in [*lines, *inline] if (words := ours(line)) is not None]
    assert len(found) >= 65
    verbs = set()
    for words in found:
        with pytest.raises(Parsed) as parsed:
            # As a shell replaces it.
            app([word.replace("$P", "server.properties") for word in words], prog_name="snaprebuild", standalone_mode=False)
        verbs.add(str(parsed.value).partition(" ")[2])
    assert verbs >= {"scan", "rebuild", "install", "verify", "undo", "follower offsets", "tier inventory"}
    for wrong in (["install"], ["rebuild", "x", "--staged", "y"], ["instal", "x"]):
        with pytest.raises(click.UsageError):
            app(wrong, standalone_mode=False)
    shell = [line for each in blocks() if each.language == "sh" for line in each.lines if ours(line) is None]
    assert {line.split()[0] for line in shell} <= OTHERS


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Two disks of a broker of 2.7: their names on the page, and their paths here."""
    other = Path("/dev/shm", f"snaprebuild-{secrets.token_hex(8)}")
    for disk, topic in ((tmp_path / "d1", "orders"), (other, "payments")):
        logs = copy_of("kafka27-mixed", disk).rename(disk / "logs")
        for name in ("logappend-0", "deleted-0", "plain-0"):
            shutil.rmtree(logs / name)
        (logs / "mixed-0").rename(logs / f"{topic}-0")
        for checkpoint in ("recovery-point", "replication"):
            path = logs / f"{checkpoint}-offset-checkpoint"
            path.write_text(path.read_text().replace("mixed 0", f"{topic} 0"))
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={tmp_path}/d1/logs,{other}/logs\n")
    here = {"/var/lib/kafka/d1": f"{tmp_path}/d1", "/var/lib/kafka/d2": str(other), "$P": str(properties)}
    yield {**here, "s3://tiered/kafka": str(FIXTURES / "tiered-local" / "remote")}
    shutil.rmtree(other)


class Typed:
    """Types lines of the page."""

    def __init__(self, here: dict[str, str], directory: Path) -> None:
        self.here, self.directory = here, directory

    def run(self, line: str) -> Run:
        words = [self._here(word) for word in ours(line) or []]
        clock = AS_OF if words[0] == "rebuild" else ()
        return snaprebuild(*words, *clock)

    def _here(self, word: str) -> str:
        for there, place in self.here.items():
            word = word.replace(there, place)
        return str(self.directory / word) if re.fullmatch(r"\w+\.jsonl", word) else word


def test_the_same_on_every_broker_and_back(broker: dict[str, str], tmp_path: Path) -> None:
    typed = Typed(broker, tmp_path)
    lines = [line for line in block("The commands").lines if ours(line) is not None]
    scan, plan, stage, dry, install, kept, offsets, undo = lines
    disks = [Path(broker[f"/var/lib/kafka/{each}"]) for each in ("d1", "d2")]
    directories = [disks[0] / "logs" / "orders-0", disks[1] / "logs" / "payments-0"]
    with live_broker(disks[0] / "logs"), live_broker(disks[1] / "logs"):
        found = typed.run(scan)
        assert (found.exit_code, "orders-0" in found.stdout) == (1, True), found.stdout
        assert typed.run(plan).exit_code == 0
        assert typed.run(stage).exit_code == 0
        assert (disks[1] / "staged" / "payments-0.staged").is_dir(), "on the disk of its log directory"
        assert typed.run(dry).exit_code == 0
        assert typed.run(install).exit_code == 3
    done = typed.run(install)
    assert done.exit_code == 0, done.stderr
    expected = truth("kafka27-mixed", "mixed-0")
    for directory in directories:
        found_there = snapshots_in(directory)
        assert all(found_there[offset] == expected[offset] for offset in bases_of(directory)[1:])
    assert typed.run(kept).exit_code == 0
    assert typed.run(offsets).exit_code in (0, 1)
    (removal,) = [line for line in block("The commands").lines if line.startswith("rm ")]
    for path in shlex.split(removal)[2:]:
        shutil.rmtree(path.replace("/var/lib/kafka/d1", str(disks[0])).replace("/var/lib/kafka/d2", str(disks[1])))
    assert typed.run(kept).exit_code == 0, "they are the same files under a second name"
    dry_undo, same_undo = block("With the broker stopped").lines
    assert (typed.run(dry_undo).exit_code, same_undo) == (0, undo)
    assert typed.run(undo).exit_code == 0
    assert [len(snapshots_in(directory)) for directory in directories] == [3, 3]


def test_without_a_stop_of_its_own(broker: dict[str, str], tmp_path: Path) -> None:
    disks = [Path(broker[f"/var/lib/kafka/{each}"]) for each in ("d1", "d2")]
    (line,) = block("Without a stop").lines
    with live_broker(running(disks[0] / "logs")), live_broker(running(disks[1] / "logs")):
        done = Typed(broker, tmp_path).run(line)
    assert done.exit_code == 0, done.stderr
    expected = truth("kafka27-mixed", "mixed-0")
    for directory in (disks[0] / "logs" / "orders-0", disks[1] / "logs" / "payments-0"):
        found = snapshots_in(directory)
        assert all(found[offset] == expected[offset] for offset in bases_of(directory)[1:])
