"""Batches and control records in the words of ``kafka-dump-log``, on every file that Kafka's own tool dumped for the fixtures."""

import re
from pathlib import Path

import pytest
from fixture_files import dumped_files
from manifests import FIXTURES

from snaprebuild.cli.render.dump import TextLines
from snaprebuild.inspect.dump import dump_file
from snaprebuild.inspect.dump_items import DumpRequest

DUMPS = dumped_files()
CONTROL = re.compile(r" (endTxnMarker|SnapshotHeader|SnapshotFooter|KRaftVersion|KRaftVoters):? ")


def lines_of(path: Path) -> list[str]:
    dump, lines = dump_file(str(path), DumpRequest(None)), TextLines(payload=False)
    text = lines.begin(dump) + "".join(map(lines.items, dump.items))
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize(("dump", "path"), DUMPS, ids=[str(dump.relative_to(FIXTURES)) for dump, _ in DUMPS])
def test_lines_are_those_of_kafka(dump: Path, path: Path) -> None:
    """A dump may leave leader changes out. Records of data are there only where the tool was asked for them."""
    ours, kafkas = lines_of(path), [line.rstrip() for line in dump.read_text().splitlines()]
    batches = [line for line in kafkas if line.startswith("baseOffset")]
    assert batches
    assert [line for line in ours if line.startswith("baseOffset")] == batches
    records = [line for line in ours if line.startswith("| ")]
    assert set(records) <= set(kafkas)
    assert [line for line in records if CONTROL.search(line)] == [line for line in kafkas if CONTROL.search(line)]


def test_every_kind_of_control_record_is_there() -> None:
    found = {kind for dump, _ in DUMPS for kind in CONTROL.findall(dump.read_text())}
    assert len(found) == 5
