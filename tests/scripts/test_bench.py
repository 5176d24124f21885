"""The benchmark runs, and its ratios are not far from what was promised: a small run, with wide margins, on ratios only."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from log_dirs import batch_positions
from make_partition import Shape, make_partition
from segment_summaries import summarise_segment

from formats.log.batch_headers import BytesSegment, HeaderReader, TailKind

BENCH = Path(__file__).resolve().parents[2] / "scripts" / "bench"
COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)


@pytest.mark.night
def test_no_ratio_is_far_from_what_was_promised() -> None:
    if COMPILER is None:
        pytest.skip("there is no C compiler for the floor")
    # Small files, a busy machine: five times the promise still shows a fast path that is no longer taken.
    arguments = ["--mib", "96", "--repeat", "3", "--only", "16 KiB", "--only", "350 B", "--check", "--margin", "5"]
    done = subprocess.run([sys.executable, BENCH / "replay_speed.py", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not measured" not in done.stdout
    assert done.stdout.count("(<= ") + done.stdout.count("(>= ") == 13  # nine ratios, two sizes of memory, two times of a snapshot
    assert "C crc" in done.stdout
    assert done.stdout.count(", to a loop that only reads") == 4


@pytest.mark.parametrize(("producers", "bumps", "batch_bytes"), [(50, True, 350), (20, False, 16384)])
def test_generated_partitions_are_logs_that_a_broker_accepts(producers: int, bumps: bool, batch_bytes: int, tmp_path: Path) -> None:
    """Else the benchmark would measure the reading of something else."""
    count = make_partition(tmp_path / "t-0", Shape(batch_bytes, 3 << 20, 1 << 20, producers, bumps))
    headers = []
    state: dict[int, tuple[int, int, bool]] = {}  # epoch, next sequence, whether a transaction is open
    for path in sorted((tmp_path / "t-0").glob("*.log")):
        source = BytesSegment(path.read_bytes())
        reader = HeaderReader(source)
        assert int(path.stem) == (headers[-1].last_offset + 1 if headers else 0)
        headers += [header for block in reader for header in block.headers()]
        assert reader.tail is not None
        assert reader.tail.kind is TailKind.CLEAN
        index = np.frombuffer(path.with_suffix(".index").read_bytes(), dtype=">i4").reshape(-1, 2)
        assert set(index[:, 1].tolist()) <= set(batch_positions(path))
        assert len(index) > 100 or batch_bytes > 4096
        summary = summarise_segment(source, int(path.stem), hint=index[:, 1])
        assert (summary.effect.failure_offset, summary.facts.bad_crc_count) == (None, 0)
    assert [each.base_offset for each in headers[1:]] == [each.last_offset + 1 for each in headers[:-1]]
    for header in headers:
        epoch, sequence, is_open = state.get(header.producer_id, (0, 0, False))
        if header.is_control:
            assert (is_open, header.producer_epoch) == (True, epoch + bumps)
            state[header.producer_id] = (header.producer_epoch, 0 if bumps else sequence, False)
        else:
            assert (header.producer_epoch, header.base_sequence) == (epoch, sequence)
            state[header.producer_id] = (epoch, sequence + header.record_count, header.is_transactional)
    assert len(headers) == count
    assert any(header.is_control for header in headers)


@pytest.mark.kafka
@pytest.mark.night
def test_kafka_is_timed_on_the_same_files() -> None:
    """A small run of what docs/internals/speed.md shows; Kafka's classes find the producers, and every row is there."""
    arguments = ["--mib", "4", "--passes", "1", "--only", "350 B", "--no-broker", "--no-spark"]
    done = subprocess.run([BENCH / "kafka_speed.py", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (
        "Kafka rebuild, warm",
        "Kafka recover, first pass",
        "headers, 2 workers",
        "CRC, in process",
        "kafka-dump-log",
        "headers, two workers, to Kafka's warm replay",
    )
    assert [row for row in rows if row not in done.stdout] == []


def test_commands_are_timed_with_compiled_modules() -> None:
    """Some environments forbid Python to keep them; an installed package has them."""
    environment = {**os.environ, "SNAPREBUILD_PYTHON": sys.executable, "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import sys; sys.exit(sys.dont_write_bytecode)"
    with tempfile.NamedTemporaryFile("w", suffix=".py") as program:
        program.write(f"# The second line says what is needed.\n# needs: package\n{code}\n")
        program.flush()
        done = subprocess.run([BENCH.parent / "run", program.name], env=environment, check=False)
    assert done.returncode == 0
