#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: kafka
"""Compares results of the verbs about leaders, followers and disks with live clusters of real brokers.

Chapters:

* ``offsets``: ListOffsets of a leader with remote storage;
* ``where``: what serves its offsets, and what a deletion removes;
* ``follower``: empty followers that start from it (KIP-1023);
* ``disk``: a replaced disk in a cluster of three;
* ``elect``: elections of ``fleet``, by Kafka's tools.

Every step checks itself; the first that differs ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from kafka_classpath import KAFKA_VERSION
from kafka_release import RELEASES
from live_disk import LiveDisk
from live_elect import LiveElect
from live_follower import LiveFollower
from live_offsets import LiveOffsets
from live_where import LiveWhere
from transcript import Transcript


class Chapter(Protocol):
    """Asks real brokers what ours answers."""

    def run(self) -> dict[str, object]:
        """The figures; an error where an answer differs."""


CHAPTERS: dict[str, Callable[[Path, str, Transcript], Chapter]] = {
    "offsets": LiveOffsets,
    "where": LiveWhere,
    "follower": LiveFollower,
    "disk": LiveDisk,
    "elect": LiveElect,
}


def main(arguments: Sequence[str]) -> int:
    """The command."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/kafka/compare_with_cluster.py", description=__doc__, formatter_class=raw)
    parser.add_argument("chapters", nargs="*", metavar="CHAPTER", help=f"{', '.join(CHAPTERS)} (default: all)")
    versions = [version for version, release in RELEASES.items() if release.zookeeper is None and release.has_tiering]
    parser.add_argument("--broker", choices=versions, default=KAFKA_VERSION, help="release (default: %(default)s)")
    options = parser.parse_args(arguments)
    chosen = options.chapters or list(CHAPTERS)
    if unknown := set(chosen) - CHAPTERS.keys():
        parser.error(f"no such chapter: {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    work = Path(tempfile.mkdtemp(prefix="compare-with-cluster-")).resolve()
    say = Transcript(work)
    figures: dict[str, object] = {"brokers": f"Kafka {options.broker}, KRaft"}
    try:
        for name in chosen:
            figures |= CHAPTERS[name](work / name, options.broker, say).run()
        say.end(figures)
    except Exception as error:  # whatever it is: the exit code shows
        traceback.print_exc()
        sys.stderr.write(f"compare-with-cluster: {type(error).__name__}: {error}\nleft for a look: {work}\n")
        return 1
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
