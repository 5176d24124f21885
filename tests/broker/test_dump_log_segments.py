"""``dump`` and Kafka's own ``DumpLogSegments`` on every bundled file that it reads: the same lines, the same complaints."""

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from command import Run, snaprebuild_process
from kafka_classpath import KAFKA_VERSION, OTHER_VERSIONS, kafka_classpath
from log_dirs import batch_positions
from manifests import FIXTURES, bundled, is_known_corruption
from sentences import MORE_OF_THIS_KIND
from strategies import header_of

from formats.log.record_batch import Record, RecordHeader, build_record_batch, parse_batch_header

pytestmark = pytest.mark.kafka

ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint")
REMOTE = {"remote", "aiven-layout"}
PARTITION_DIRS = {
    path.parent
    for path in FIXTURES.rglob("*")
    if path.name.endswith(ENDINGS) and not REMOTE & set(path.parts) and not is_known_corruption(path)
}
FIXTURE_NAMES = sorted({path.relative_to(FIXTURES).parts[0] for path in PARTITION_DIRS})
FILES_AT_ONCE = 400
"""Their names are one argument of a command, of which the kernel takes 128 KiB."""
SECONDS = 120


def files_of(directory: Path) -> list[str]:
    """Files that Kafka's tool reads, below a copy of a fixture. It cannot read the names of a remote tier."""
    found = (path for path in sorted(directory.rglob("*")) if path.name.endswith(ENDINGS) and not REMOTE & set(path.parts))
    return [str(path) for path in found if path.is_file()]


@functools.cache
def has_tool_in_core(version: str) -> bool:
    return version.startswith("3.")


def kafka_dump(version: str, files: list[str], *options: str) -> tuple[list[str], str]:
    """The lines on stdout, and stderr."""
    main = "kafka.tools.DumpLogSegments" if has_tool_in_core(version) else "org.apache.kafka.tools.DumpLogSegments"
    command = ["java", "-cp", kafka_classpath(version), "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", main, *options]
    lines, complaints = [], ""
    for at in range(0, len(files), FILES_AT_ONCE):
        command_of_some = [*command, "--files", ",".join(files[at : at + FILES_AT_ONCE])]
        done = subprocess.run(command_of_some, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        lines, complaints = [*lines, *done.stdout.splitlines()], complaints + done.stderr
    return lines, complaints


def without_oddities(lines: list[str]) -> list[str]:
    """Kafka's lines without what is no fact of a file.

    That an index is empty we tell by no line; 3.9 has a brace too much and does not show who leads; a blank ends some lines. Of an index
    that is allocated and holds nothing Kafka shows the zeros in front as an entry.
    """
    kept: list[str] = []
    for line in lines:
        file = Path(kept[-1].removeprefix("Dumping ")) if kept and kept[-1].startswith("Dumping ") else None
        is_zeros = re.fullmatch(r"offset: \d+ position: 0|timestamp: 0 offset: \d+", line) is not None
        if line.endswith(" is empty.") or (is_zeros and file is not None and not file.read_bytes().strip(b"\0")):
            continue
        kept.append(line.rstrip())
    return [re.sub(r"( crc: \d+)\}$", r"\1", line) for line in kept]


def leader_change_hidden(line: str) -> str:
    return re.sub(r" LeaderChange: .*", " controlType: LEADER_CHANGE(2)", line)


def by_file(lines: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.startswith("Dumping "):
            found[line] = []
        found[next(reversed(found))].append(line)
    return found


@functools.cache
def our_dump(files: tuple[str, ...]) -> Run:
    """Whichever release it is compared with."""
    return snaprebuild_process("inspect dump", "--deep", *files)


WHOLE = [name for name in FIXTURE_NAMES if name != "damaged"]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that has the same name for each release."""
    return tmp_path_factory.mktemp("copies")


@pytest.mark.parametrize(
    ("fixtures", "version"),
    [
        pytest.param(WHOLE, KAFKA_VERSION, id=f"whole-{KAFKA_VERSION}"),
        *(pytest.param(WHOLE, each, id=f"whole-{each}", marks=pytest.mark.night) for each in OTHER_VERSIONS),
        *(pytest.param(["damaged"], each, id=f"damaged-{each}") for each in (KAFKA_VERSION, *OTHER_VERSIONS)),
    ],
)
def test_the_lines_are_those_of_kafka(fixtures: list[str], version: str, copies: Path) -> None:
    # Copies: Kafka opens indexes to write.
    shutil.rmtree(copies)
    files = [file for name in fixtures for file in files_of(shutil.copytree(bundled(name), copies / name))]
    theirs, _ = kafka_dump(version, files, "--deep-iteration")
    run = our_dump(tuple(files))
    assert run.exit_code == (4 if fixtures == ["damaged"] else 0), run.stderr
    ours = [line.rstrip() for line in run.stdout.splitlines()]
    if has_tool_in_core(version):
        ours = [leader_change_hidden(line) for line in ours]
    mine, kafkas = by_file(ours), by_file(without_oddities(theirs))
    assert len(mine) == len(files)
    assert list(mine) == list(kafkas)
    for file, lines in kafkas.items():
        assert mine[file] == lines


@pytest.mark.parametrize("fixture", ["kafka27-mixed", "kafka4-mixed", "magicup"])
def test_without_deep_only_control_records_are_added(fixture: str, tmp_path: Path) -> None:
    files = [each for each in files_of(shutil.copytree(bundled(fixture), tmp_path / fixture)) if each.endswith(".log")]
    theirs, _ = kafka_dump(KAFKA_VERSION, files)
    ours = snaprebuild_process("inspect", "dump", *files).stdout.splitlines()
    records = [line for line in ours if line.startswith("| ")]
    assert [line for line in ours if not line.startswith("| ")] == theirs
    assert len(records) == sum(" isControl: true " in line for line in theirs)
    assert all(" endTxnMarker: " in line for line in records)


def test_payloads_that_are_text_are_those_of_kafka(tmp_path: Path) -> None:
    files = files_of(shutil.copytree(FIXTURES / "magic1", tmp_path / "magic1"))
    files = [each for each in files if each.endswith(".log")]
    theirs, _ = kafka_dump(KAFKA_VERSION, files, "--print-data-log")
    ours = snaprebuild_process("inspect", "dump", "--print-data-log", *files).stdout.splitlines()
    assert len(ours) == len(theirs)
    printable = [(one, other) for one, other in zip(ours, theirs, strict=True) if "base64:" not in one]
    assert sum(" payload: " in one for one, _ in printable) > 100
    assert all(one == other for one, other in printable)


def test_headers_of_records_are_shown_by_their_keys_as_kafka_does(tmp_path: Path) -> None:
    """Values of headers are in ``--output json`` alone."""
    headers = (RecordHeader(b"trace", b"secret"), RecordHeader(b"trace", None), RecordHeader("ü".encode(), b""))
    records = [
        Record(0, 0, b"key", b"value", headers),
        Record(5, 1, None, b"without a key"),
        Record(9, 2, b"", None, (RecordHeader(b"a", b"1"),)),
    ]
    header = header_of(7, record_count=3, last_offset_delta=2, max_timestamp=1009)
    log = tmp_path / "orders-0" / f"{7:020d}.log"
    log.parent.mkdir()
    log.write_bytes(build_record_batch(header, records))
    theirs, _ = kafka_dump(KAFKA_VERSION, [str(log)], "--print-data-log")
    ours = snaprebuild_process("inspect", "dump", "--print-data-log", log).stdout.splitlines()
    assert sum(" headerKeys: [" in line for line in theirs) == 3
    assert ours == theirs


def test_an_index_that_points_elsewhere_is_reported_alike(tmp_path: Path) -> None:
    logs = shutil.copytree(FIXTURES / "kafka4-mixed", tmp_path / "kafka4-mixed")
    index = next(path for path in sorted(logs.rglob("*.index")) if path.stat().st_size >= 80)
    data = bytearray(index.read_bytes())
    positions = batch_positions(index.with_suffix(".log"))
    # The third entry names the batch after the one that it should.
    position = int.from_bytes(data[20:24], "big")
    data[20:24] = positions[positions.index(position) + 1].to_bytes(4, "big")
    # A later one an offset inside of its batch, at which none ends.
    log = index.with_suffix(".log").read_bytes()
    several = [
        at
        for at in range(32, len(data), 8)
        if parse_batch_header(log[int.from_bytes(data[at + 4 : at + 8], "big") :]).record_count > 1
    ]
    data[several[0] : several[0] + 4] = (int.from_bytes(data[several[0] : several[0] + 4], "big") - 1).to_bytes(4, "big")
    index.write_bytes(data)
    theirs, complaints = kafka_dump(KAFKA_VERSION, [str(index)])
    run = snaprebuild_process("inspect", "dump", index)
    assert run.exit_code == 1
    reported = re.findall(r"Index offset: (\d+), log offset: (\d+)", complaints)
    ours = re.findall(r"^offset: (\d+) position: \d+ log offset: (\d+)$", run.stdout, re.MULTILINE)
    assert sorted(ours) == sorted(reported)
    assert len(reported) == 2
    assert [re.sub(r" log offset: \d+$", "", line) for line in run.stdout.splitlines()] == theirs
    assert f"and 1 {MORE_OF_THIS_KIND}" in run.stderr
