#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Real Kafka brokers on loopback, without a container: each in a directory of its own, ended by process id.

The releases are downloaded by Maven once, and every jar is compared with a checksum that is kept here. DIR holds everything: the log
directory (kafka-logs), remote storage (remote), the data of ZooKeeper, settings and logs. A later release over the same DIR is an upgrade.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kafka_classpath import KafkaUnavailableError, kafka_classpath, missing_tools
from kafka_node import KafkaNode
from kafka_release import RELEASES
from kinds_of_data import Kind, write_kind

RELEASE_FILE = "release"


def main(arguments: Sequence[str]) -> int:
    """The command. Returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except (KafkaUnavailableError, UsageError) as error:
        sys.stderr.write(f"scripts/kafka/local_broker.py: {error}\n")
        return 2 if isinstance(error, UsageError) else 3
    except AssertionError as error:
        sys.stderr.write(f"scripts/kafka/local_broker.py: {error}\n")
        return 1


class UsageError(Exception):
    """A command line that has no meaning."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/kafka/local_broker.py", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    versions = verbs.add_parser("versions", help="the releases that can be started")
    versions.set_defaults(run=_versions)

    start = verbs.add_parser("start", help="start a broker, and return when it serves")
    start.add_argument("version", choices=RELEASES, metavar="VERSION", help=", ".join(RELEASES))
    start.add_argument("directory", type=Path, metavar="DIR")
    start.add_argument("--no-tiering", action="store_true", help="without remote storage (LocalTieredStorage in DIR/remote)")
    start.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the broker; repeatable")
    start.set_defaults(run=_start)

    for name, run, help_text in (
        ("stop", _stop, "end the broker cleanly, and its ZooKeeper"),
        ("status", _status, "what runs, and what the directory holds; exit code 1 where nothing runs"),
    ):
        verb = verbs.add_parser(name, help=help_text)
        verb.add_argument("directory", type=Path, metavar="DIR")
        verb.set_defaults(run=run)

    produce = verbs.add_parser(
        "produce", help="write records of a kind into a topic of one partition, which is created where it is not"
    )
    produce.add_argument("directory", type=Path, metavar="DIR")
    produce.add_argument("topic", metavar="TOPIC")
    kinds = "plain, idempotent, committed or aborted transactions, or one that hangs: no coordinator knows of it (3.5 and earlier)"
    produce.add_argument("kind", type=Kind, choices=list(Kind), metavar="KIND", help=kinds)
    produce.add_argument("records", type=int, metavar="RECORDS", help="of 300 bytes, ten in a batch, 25 in a transaction")
    produce.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of a new topic; repeatable")
    produce.set_defaults(run=_produce)
    return parser


def _pairs(settings: list[str]) -> dict[str, object]:
    for setting in settings:
        if "=" not in setting:
            raise UsageError(f"NAME=VALUE expected, {setting!r} found")
    return {name: value for name, _, value in (setting.partition("=") for setting in settings)}


def _node(directory: Path) -> KafkaNode:
    """The node of a directory in which one was started."""
    file = directory / RELEASE_FILE
    if not file.exists():
        raise UsageError(f"{directory}: no broker was started here")
    return KafkaNode(directory.resolve(), version=file.read_text().strip())


def _versions(_: argparse.Namespace) -> int:
    for version, release in RELEASES.items():
        cluster = "KRaft" if release.zookeeper is None else f"ZooKeeper {release.zookeeper}"
        storage = "remote storage" if release.has_tiering else "no remote storage"
        sys.stdout.write(f"{version}  {cluster}, {storage}\n")
    return 0


def _start(options: argparse.Namespace) -> int:
    directory: Path = options.directory.resolve()
    is_kraft = RELEASES[options.version].zookeeper is None
    if is_kraft and (directory / "zookeeper").exists():
        raise UsageError(f"{directory}: its cluster is kept in ZooKeeper, which {options.version} does not know")
    if not is_kraft and (directory / RELEASE_FILE).exists() and not (directory / "zookeeper").exists():
        raise UsageError(f"{directory}: its cluster is kept in KRaft, and not in ZooKeeper")
    if missing := missing_tools():
        raise KafkaUnavailableError(f"not on PATH: {', '.join(missing)}")
    kafka_classpath(options.version)
    settings = _pairs(options.set)
    tiering = not options.no_tiering
    node = KafkaNode(directory, version=options.version, tiering=tiering, settings=settings, outlives=True)
    if node.is_running:
        raise UsageError(f"{directory}: a broker runs already, as process {node.pid}")
    (directory / RELEASE_FILE).write_text(f"{options.version}\n")
    try:
        node.start()
    except BaseException:
        node.kill_all()
        raise
    sys.stdout.write(f"Kafka {options.version} serves at {node.address}; process {node.pid}; log {node.log_file}\n")
    return 0


def _stop(options: argparse.Namespace) -> int:
    _node(options.directory).stop_all()
    return 0


def _status(options: argparse.Namespace) -> int:
    node = _node(options.directory)
    state = f"runs as process {node.pid} at {node.address}" if node.is_running else "is stopped"
    sys.stdout.write(f"Kafka {node.release.version} {state}\n")
    if node.zookeeper is not None:
        pid = node.zookeeper.process.pid
        where = f"runs as process {pid} at 127.0.0.1:{node.zookeeper.port}" if pid is not None else "is stopped"
        sys.stdout.write(f"ZooKeeper {node.release.zookeeper} {where}\n")
    for partition in sorted(node.log_dir.glob("*-[0-9]*")):
        segments = list(partition.glob("*.log"))
        snapshots = list(partition.glob("*.snapshot"))
        uploaded = sum(name.endswith(".log") for name in node.remote_files(partition.name))
        size = sum(segment.stat().st_size for segment in segments)
        sys.stdout.write(
            f"  {partition.name}: {len(segments)} segments, {size} bytes, {len(snapshots)} snapshots, {uploaded} uploaded\n"
        )
    return 0 if node.is_running else 1


def _produce(options: argparse.Namespace) -> int:
    node = _node(options.directory)
    if not node.is_running:
        raise UsageError(f"{options.directory}: no broker runs")
    if not (node.log_dir / f"{options.topic}-0").exists():
        node.create_topic(options.topic, _pairs(options.set))
    elif options.set:
        raise UsageError(f"the topic {options.topic} is there already: --set is for a new one")
    write_kind(node.address, options.topic, options.kind, options.records)
    stable = node.end_offset(options.topic, stable=True)
    end = node.end_offset(options.topic)
    sys.stdout.write(f"{options.topic}-0: log end {end}, last stable offset {stable}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
