"""Kafka's own answer to what a log says about its producers: a Java process, asked by lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal, NamedTuple, Self

from kafka_classpath import KAFKA_VERSION, oracle_classpath, oracle_main

START_SECONDS = 60.0
ANSWER_SECONDS = 120.0
ANSWER_BYTES_MAX = 1 << 30

Mode = Literal["rebuild", "recover"]


class Entry(NamedTuple):
    """One producer in a snapshot; -1 where Kafka has none."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int
    coordinator_epoch: int
    current_txn_first_offset: int

    @classmethod
    def of(cls, row: dict[str, int]) -> Entry:
        """From a row of the oracle or of a manifest. Unknown and missing names are errors."""
        return cls(**row)


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended. ``last_stable_offset`` is None in rebuild mode, where Kafka does not ask for it."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int | None


@dataclass(frozen=True, slots=True)
class Boundary:
    """A segment, and Kafka's state at the boundary that follows it."""

    segment: str
    base_offset: int
    bytes: int
    batches: int
    max_magic: int
    max_timestamp: int
    next_offset: int
    snapshot_offset: int
    first_undecided_offset: int | None
    entries: tuple[Entry, ...]

    @property
    def state(self) -> dict[int, Entry]:
        """Entries by producer id."""
        return {entry.producer_id: entry for entry in self.entries}


@dataclass(frozen=True, slots=True)
class Stop:
    """Where Kafka's classes threw. ``truncated``: `LogSegment.recover` would cut the segment at ``offset`` and go on."""

    segment: str
    offset: int
    truncated: bool
    error: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Kafka's answer about one partition directory."""

    boundaries: tuple[Boundary, ...]
    end_offset: int
    stopped: Stop | None
    completed: tuple[CompletedTransaction, ...]

    @property
    def states(self) -> dict[int, dict[int, Entry]]:
        """State by boundary, by producer id."""
        return {boundary.snapshot_offset: boundary.state for boundary in self.boundaries}


class OracleError(Exception):
    """The request failed inside Kafka; the message is ``java.class: text``."""


class OracleDiedError(Exception):
    """The Java process ended, or did not answer in time."""


class Oracle:
    """The running process. Use as a context manager. Of a release before 3.0 only replays can be asked for."""

    def __init__(self, version: str = KAFKA_VERSION) -> None:
        self._pending = b""
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        command = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        # Kafka warns about every odd epoch; the answers say the same.
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=off", "-cp", oracle_classpath(version), oracle_main(version)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        try:
            self.version: str = self._answer(START_SECONDS)["version"]
        except BaseException:
            self.close()
            raise

    def replay(self, directory: Path, mode: Mode, base: Path | None = None) -> Replay:
        """Folds a partition directory from its first segment on, on the snapshot there if one is given."""
        more = {} if base is None else {"base": str(base)}
        answer = self._ask(op="replay", dir=str(directory), mode=mode, **more)
        boundaries = []
        for row in answer["segments"]:
            entries = tuple(Entry.of(entry) for entry in row.pop("entries"))
            boundaries.append(Boundary(**row, entries=entries))
        return Replay(
            boundaries=tuple(boundaries),
            end_offset=answer["end_offset"],
            stopped=None if answer["stopped"] is None else Stop(**answer["stopped"]),
            completed=tuple(CompletedTransaction(**row) for row in answer["completed"]),
        )

    def answers(self, log: bytes, attempts: Sequence[tuple[bytes, bool]], *, reload: bool) -> list[str]:
        """A leader's answer to each batch after a log: ``accepted``, ``duplicate N`` (the offset it acknowledges), or the
        exception.

        The second of each attempt: a transactional producer of version 2 sends it. With ``reload`` the leader was stopped and started.
        """
        rows = [{"batch": batch.hex(), "bumps_epochs": bumps_epochs} for batch, bumps_epochs in attempts]
        answers: list[str] = self._ask(op="answer", log=log.hex(), reload=reload, attempts=rows)
        return answers

    def snapshot(self, file: Path) -> list[Entry]:
        """`ProducerStateManager.readSnapshot`. Raises OracleError where Kafka rejects the file."""
        return [Entry.of(row) for row in self._ask(op="snapshot", file=str(file))]

    def close(self) -> None:
        """Ends the process: the end of its input is its order to stop; it is killed if it does not obey."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _ask(self, **request: object) -> Any:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise self._died(f"takes no request: {error}") from None
        return self._answer(ANSWER_SECONDS)

    def _answer(self, seconds: float) -> Any:
        answer = json.loads(self._line(seconds))
        if "error" in answer:
            raise OracleError(answer["error"])
        return answer["ok"]

    def _line(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        stream = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        parts = [self._pending]
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                # A late answer would be taken for that of the next request.
                self._process.kill()
                raise self._died(f"did not answer within {seconds:.0f} s")
            parts.append(os.read(stream, 1 << 20))
            if not parts[-1]:
                raise self._died("ended")
            if sum(map(len, parts)) > ANSWER_BYTES_MAX:
                self._process.kill()
                raise self._died("sent an answer without an end")
        line, _, self._pending = b"".join(parts).partition(b"\n")
        return line

    def _died(self, what: str) -> OracleDiedError:
        self._process.wait(120)
        self._stderr.seek(0)
        return OracleDiedError(f"the oracle {what}; its stderr: {self._stderr.read()[-2000:].decode(errors='replace')}")
