#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: deploy
"""Three brokers of Kafka 2.7 with ZooKeeper are upgraded to 3.9 by the plays of scripts/deploy/ansible, one after the other.

Producers and a consumer are at work all the time. The first roll fails at the second broker and is run again. A second roll raises
the protocol version, and a third one switches remote storage on. Then everything is uploaded. Each step checks itself; the first that
differs ends it with 1.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from ansible_plays import run_play, write_inventory
from counted_traffic import PARTITIONS, PLAIN, RECORDS_IN_TRANSACTION, TRANSACTED, CountedTraffic, read_everything
from kafka_node import KafkaNode
from log_dirs import snapshot_name, tree
from three_brokers import Release, broker_at, broker_dirs, running_release
from transcript import NotAsExpectedError, Transcript, demonstration, parser_of

HERE = Path(__file__).resolve().parents[2] / "tests" / "deploy"
OLD = Release("2.7.2", "2.7")
NEW = Release("3.9.2", "2.7")
RAISED = Release("3.9.2", "3.9")
TIERING = Release("3.9.2", "3.9", tiering=True)
SEGMENT_BYTES = 65536
TOPIC = {"segment.bytes": SEGMENT_BYTES, "retention.ms": -1, "min.insync.replicas": 2}
TIERED = {"remote.storage.enable": "true", "local.retention.ms": -2, "local.retention.bytes": -2}
BAD = re.compile("NullPointerException|NonMonotonic")
WAIT_SECONDS = 300.0
DONE = re.compile(r"(kafka-\d): \d+ snapshots were missing\. (.+?[.;]).*?((?:Stop|install) to start: [\d.]+ s)")
CONTROLLER = "kafka-1"
"""The broker that starts first is the active controller, and restarts last."""


class RollingUpgrade:
    """The steps, over one directory."""

    def __init__(self, work: Path, say: Transcript) -> None:
        self._work = work
        self._say = say
        self._approval = work / "approval"
        self._inventory = work / "inventory.json"
        self._dirs = broker_dirs(work, OLD)
        self._figures: dict[str, object] = {}
        self._brokers = [broker_at(each) for each in self._dirs]
        self._servers = ",".join(each.address for each in self._brokers)
        self._traffic = CountedTraffic(self._servers)

    # ---- the steps ----

    def run(self) -> None:
        """From the first to the last."""
        self._say.step("three brokers of Kafka 2.7.2 with ZooKeeper, replication factor 3, min.insync.replicas 2, clients at work")
        try:
            for broker in self._brokers:
                broker.start()
            for topic in (PLAIN, TRANSACTED):
                self._create(topic)
            self._say.check("the first one is the controller, and restarts last", self._controller(), CONTROLLER)
            self._traffic.start()
            self._wait("each replica lacks snapshots", lambda: all(len(self._missing(each)) > 8 for each in self._dirs))
            self._write_inventory(NEW)
            self._upgrade()
            # Each broker has ids of all topics before the first one may upload.
            self._roll_to(RAISED, "inter.broker.protocol.version 3.9, by the same plays")
            self._say.check("each replica has a topic id", all(map(self._has_ids, self._dirs)))
            self._roll_to(TIERING, "remote.log.storage.system.enable=true, by the same plays")
            self._upload()
            self._end_traffic()
        finally:
            if not self._traffic.is_stopped:
                self._traffic.stop(wait_for_reader=False)
            for broker in self._at_work():
                broker.kill()
            self._brokers[0].kill_all()
        self._say.end(self._figures)

    def _upgrade(self) -> None:
        self._say.step("prepare.yml: scan, stage, one page to approve; all brokers run")
        before = self._trees()
        self._play("prepare.yml", "--check")
        self._say.check("--check has written nothing", self._trees() == before)
        approve = self._prepare()
        self._say.step("roll.yml without approval, and with --check")
        self._say.check("refused", "Run prepare.yml" in self._play("roll.yml", exit_code=2))
        before = self._trees()
        self._play("roll.yml", "--check", *approve)
        self._say.check("--check has written nothing", self._trees() == before)
        self._say.check("and stopped no broker", self._releases(), [str(OLD)] * 3)

        self._say.step("roll.yml to 3.9.2; kafka-3 is the second in order, and the new software cannot be installed there")
        printed = self._play("roll.yml", *approve, "-e", "fail_at=kafka-3", exit_code=2)
        self._say.check("it ended there", "the new release cannot be installed here" in printed)
        self._say.check(
            "kafka-2 is done, kafka-3 is down, the controller was not touched", self._releases(), [str(OLD), str(NEW), "down"]
        )
        options = ("--limit", CONTROLLER, "-e", "snaprebuild_gate_retries=2")
        printed = self._play("roll.yml", *approve, *options, exit_code=2)
        self._say.check(
            "the gate lets no other broker stop", "Wait until all brokers answer" in printed and self._releases()[0], str(OLD)
        )

        self._say.step("roll.yml once more: continues at kafka-3")
        self._play("roll.yml", *approve)
        self._say.check("all run the new release", self._releases(), [str(NEW)] * 3)
        self._say.check("no snapshot is missing on any of them", [self._missing(each) for each in self._dirs], [[], [], []])

        self._say.step("roll.yml once more: nothing left to do")
        began = [each.pid for each in self._at_work()]
        self._say.check("no broker is done again", DONE.findall(self._play("roll.yml", *approve)), [])
        self._say.check("and none was restarted", [each.pid for each in self._at_work()], began)

    def _roll_to(self, release: Release, step: str) -> None:
        self._say.step(step)
        self._write_inventory(release)
        approve = self._prepare()
        active = self._controller()
        printed = self._play("roll.yml", *approve)
        self._say.check(
            "the broker that is the controller now restarts last", DONE.findall(" ".join(printed.split()))[-1][0], active
        )
        self._say.check("all run with the new configuration", self._releases(), [str(release)] * 3)

    def _has_ids(self, directory: Path) -> bool:
        log_dir = broker_at(directory).log_dir
        return all((log_dir / partition / "partition.metadata").exists() for partition in self._partitions())

    def _upload(self) -> None:
        self._say.step("remote storage is switched on for both topics")
        for topic in (PLAIN, TRANSACTED):
            self._at_work()[0].set_topic(topic, TIERED)
        self._wait("each rolled segment below the last stable offset is uploaded", lambda: not self._not_uploaded())
        copied = 0
        equal = True
        for partition in self._partitions():
            leader = self._leader(partition)
            remote = leader.remote_files(partition)
            following = dict(itertools.pairwise(self._bases(leader.root, partition)))
            for base in [int(name[:20]) for name in remote if name.endswith(".log")]:
                local = leader.log_dir / partition / snapshot_name(following[base])
                equal = equal and remote[snapshot_name(base)].read_bytes() == local.read_bytes()
                copied += 1
        self._say.check("each copy has the snapshot of its leader, byte for byte", equal)
        bad = [line for each in self._brokers for line in each.log_file.read_text().splitlines() if BAD.search(line)]
        self._say.check("no NullPointerException in any log", bad, [])
        self._figures["segments uploaded"] = copied

    def _end_traffic(self) -> None:
        self._say.step("the clients end; what was acknowledged is compared with what is there")
        traffic = self._traffic
        traffic.stop()
        records = read_everything(self._servers)
        expected = traffic.expected()
        self._say.check("no request of a producer has failed", traffic.failed, [])
        self._say.check("all that was sent is acknowledged", len(traffic.acknowledged), traffic.sent)
        self._say.check("no acknowledged record is lost", expected - records.keys(), set())
        self._say.check("no record is there twice", [each for each, times in records.items() if times > 1], [])
        self._say.check("nothing of an aborted transaction is read", records.keys() - expected, set())
        self._say.check("the consumer has read all of it meanwhile", expected - traffic.seen.keys(), set())
        self._say.check("and nothing else", traffic.seen.keys() - expected, set())
        self._figures |= {
            "records acknowledged": traffic.sent,
            "transactions committed, aborted": f"{len(traffic.committed)}, {len(traffic.aborted)}",
            "records of them": len(traffic.committed) * RECORDS_IN_TRANSACTION,
            "longest silence of the consumer": f"{traffic.longest_silence:.1f} s",
        }

    # ---- the plays ----

    def _prepare(self) -> tuple[str, str]:
        """Runs prepare.yml. Returns the options that approve."""
        self._play("prepare.yml")
        approved = hashlib.sha256((self._approval / "approvals.json").read_bytes()).hexdigest()
        self._say.check("the page shows what to approve", approved in (self._approval / "fleet.html").read_text())
        return "-e", f"snaprebuild_approved={approved}"

    def _play(self, name: str, *options: str, exit_code: int = 0) -> str:
        words = " ".join(each if len(each) < 60 else f"{each[:36]}..." for each in options)
        self._say.show(f"$ ansible-playbook -i inventory.json {name} {words}".rstrip())
        began = time.monotonic()
        done = run_play(name, self._inventory, *options)
        self._say.show("\n".join(_shown(done.stdout)))
        self._say.check(f"exit code {exit_code}, {time.monotonic() - began:.0f} s", done.returncode, exit_code)
        if "--check" not in options:
            for host, installed, seconds in DONE.findall(" ".join(done.stdout.split())):
                release = running_release(broker_at(self._work / host))
                self._figures[f"{host}, {release}"] = f"{seconds}; {installed.rstrip('.;')}"
        return done.stdout

    def _write_inventory(self, release: Release) -> None:
        command = [sys.executable, str(HERE / "three_brokers.py")]
        hosts = {
            each.name: {
                "broker_dir": str(each),
                "snaprebuild_server_properties": str(each / "server.properties"),
                "snaprebuild_staging_dirs": [str(each / "staged")],
                "snaprebuild_state_dir": str(each / "state"),
                **{
                    f"snaprebuild_{verb}_command": [*command, str(each), verb]
                    for verb in ("start", "stop", "version", "controller")
                },
                "snaprebuild_kafka_topics": [*command, str(each), "topics"],
                "snaprebuild_kafka_api_versions": [*command, str(each), "api-versions"],
            }
            for each in self._dirs
        }
        variables = {
            "new_release": asdict(release),
            "snaprebuild_wanted_version": str(release),
            "snaprebuild_upgrade_tasks": str(HERE / "upgrade.yml"),
            "snaprebuild_approval_dir": str(self._approval),
            "snaprebuild_bootstrap_server": self._servers,
            "snaprebuild_gate_checks": 2,
            "snaprebuild_gate_pause": 3,
            "snaprebuild_gate_delay": 3,
            "snaprebuild_verify_contents": True,
        }
        write_inventory(self._inventory, hosts, variables)

    # ---- what is on the disks, and what the cluster answers ----

    def _create(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self._brokers[0].create_topic(f"{topic}-first", {}, replicas=3)  # waits until there is a controller
        new = NewTopic(topic, PARTITIONS, 3, config={key: str(value) for key, value in TOPIC.items()})
        admin = AdminClient({"bootstrap.servers": self._servers})  # whose answers end with it
        admin.create_topics([new])[topic].result(WAIT_SECONDS)

    def _controller(self) -> str:
        from confluent_kafka.admin import AdminClient

        return f"kafka-{AdminClient({'bootstrap.servers': self._servers}).list_topics(timeout=WAIT_SECONDS).controller_id}"

    def _at_work(self) -> list[KafkaNode]:
        """The brokers that run, in the release that they have now."""
        return [broker for each in self._dirs if (broker := broker_at(each)).is_running]

    def _releases(self) -> list[str]:
        brokers = [broker_at(each) for each in self._dirs]
        return [running_release(each) if each.is_running else "down" for each in brokers]

    @staticmethod
    def _partitions() -> list[str]:
        return [f"{topic}-{partition}" for topic in (PLAIN, TRANSACTED) for partition in range(PARTITIONS)]

    @staticmethod
    def _bases(broker: Path, partition: str) -> list[int]:
        return sorted(int(path.stem) for path in (broker / "kafka-logs" / partition).glob("*.log"))

    def _missing(self, broker: Path) -> list[str]:
        """Rolled segments of our topics without the snapshot at their end, by the names of files alone."""
        return [
            f"{partition}/{base}"
            for partition in self._partitions()
            for base in self._bases(broker, partition)[1:]
            if not (broker / "kafka-logs" / partition / snapshot_name(base)).exists()
        ]

    def _leader(self, partition: str) -> KafkaNode:
        from confluent_kafka.admin import AdminClient

        topic, _, number = partition.rpartition("-")
        metadata = AdminClient({"bootstrap.servers": self._servers}).list_topics(topic, timeout=WAIT_SECONDS).topics[topic]
        return broker_at(self._dirs[metadata.partitions[int(number)].leader - 1])

    def _not_uploaded(self) -> list[str]:
        """Rolled segments of the leaders that are not in remote storage. The newest may wait for the next round."""
        left = []
        for partition in self._partitions():
            leader = self._leader(partition)
            remote = leader.remote_files(partition)
            rolled = self._bases(leader.root, partition)[:-2]
            left += [f"{partition}/{base}" for base in rolled if not {f"{base:020d}.log", snapshot_name(base)} <= remote.keys()]
        return left

    def _trees(self) -> list[dict[str, tuple[object, ...]]]:
        """All files that the plays write, without the log directories of running brokers."""
        directories = [*(each / name for each in self._dirs for name in ("staged", "state")), self._approval]
        return [tree(each) for each in directories]

    def _wait(self, what: str, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise NotAsExpectedError(f"not within {WAIT_SECONDS:.0f} s: {what}")
            time.sleep(0.5)
        self._say.check(what, True)


def _shown(output: str) -> Iterator[str]:
    """The tasks that changed something or failed, and the messages."""
    task = ""
    for block in output.split("\n\n"):
        if match := re.match(r"TASK \[(?:snaprebuild : )?(.+?)\] \*", block):
            task = match[1]
        yield from (
            f"{host}: {result}: {task}" for result, host in re.findall(r"^(changed|fatal): \[([\w-]+)", block, re.MULTILINE)
        )
        for message in re.findall(r"^ {4}msg: (?:[>|]-\n)?(.+?)(?=^ {,4}\S|\Z)", block, re.MULTILINE | re.DOTALL):
            if "assertions passed" not in message and (text := " ".join(message.split()).strip("'")):
                yield f"  {text}"


def main() -> None:
    """The command."""
    options = parser_of("scripts/demo/rolling_upgrade.py", __doc__).parse_args()
    with demonstration(options, "demo-rolling-upgrade") as transcript:
        RollingUpgrade(transcript.work, transcript).run()


if __name__ == "__main__":
    main()
