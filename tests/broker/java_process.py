"""A Java program that runs in the background: its log, and its end by process id alone."""

import hashlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from kafka_classpath import CACHE

STOP_SECONDS = 120.0
JAVA = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LOG_LINES = ("showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS", "showShortLogName=true")
POLL_SECONDS = 0.05


def class_archive(classpath: str, main: str) -> Path:
    """Where the classes of a program lie as an earlier run had loaded them: with them Java starts in half the time."""
    return CACHE / f"{main}-{hashlib.sha256(classpath.encode()).hexdigest()[:12]}.jsa"


class JavaProcess:
    """Runs at most one process at a time. ``pid_file`` remembers it, so that another run of Python may end what this one began; only one
    that ``outlives`` this run is kept from the signals that end it (Ctrl-C)."""

    def __init__(self, directory: Path, log_file: Path, pid_file: Path, *, outlives: bool = False) -> None:
        self.log_file = log_file
        self._directory = directory
        self._pid_file = pid_file
        self._outlives = outlives
        self._child: subprocess.Popen[bytes] | None = None
        self._archives: tuple[Path, Path] | None = None
        """The archive that this run leaves when it ends, and its name then."""
        log_file.touch()

    # ---- life ----

    @property
    def pid(self) -> int | None:
        """Process id of the running process; None where there is none."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        if not self._pid_file.exists():
            return None
        pid, began = map(int, self._pid_file.read_text().split())
        return pid if _began(pid) == began else None

    def start(self, classpath: str, main: str, *arguments: str, heap_mib: int, options: Sequence[str] = ()) -> int:
        """Starts the program. Returns the mark of this start in the log: see `log_since`."""
        assert self.pid is None, f"{main} runs already"
        mark = self.log_file.stat().st_size
        command = [*JAVA, f"-Xmx{heap_mib}m", *(f"-Dorg.slf4j.simpleLogger.{each}" for each in LOG_LINES), *options]
        command += self._archive_options(class_archive(classpath, main))
        command += ["-cp", classpath, main, *arguments]
        with self.log_file.open("ab") as output:
            self._child = subprocess.Popen(
                command,
                cwd=self._directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=self._outlives,
            )
        self._pid_file.write_text(f"{self._child.pid} {_began(self._child.pid)}\n")
        return mark

    def _archive_options(self, archive: Path) -> list[str]:
        if archive.exists():
            return [f"-XX:SharedArchiveFile={archive}"]
        if self._outlives:
            return []
        left = archive.with_name(f"{archive.stem}-{os.getpid()}-{time.monotonic_ns()}.tmp")
        self._archives = (left, archive)
        return [f"-XX:ArchiveClassesAtExit={left}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]

    def stop(self) -> None:
        """SIGTERM: returns when the process has ended, and insists that it ended as one that was asked to."""
        pid = self.pid
        assert pid is not None, f"the process is not running: {self.tail()}"
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while self.pid is not None and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        status = 0 if self._child is None else self._child.returncode
        has_ended = self.pid is None
        if has_ended and self._archives is not None and self._archives[0].exists():
            self._archives[0].replace(self._archives[1])
        self.kill()
        assert has_ended, f"not ended within {STOP_SECONDS:.0f} s: {self.tail()}"
        # Java ends with 128 + SIGTERM after its shutdown hooks.
        assert status in (0, 143), f"the process ended with {status}: {self.tail()}"

    def kill(self) -> None:
        """SIGKILL to this process, if it runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        if self._child is not None:
            self._child.wait()
            self._child = None
        while self.pid is not None:
            time.sleep(POLL_SECONDS)
        self._pid_file.unlink(missing_ok=True)

    # ---- what it says ----

    def log_since(self, mark: int) -> str:
        """The log after a mark."""
        with self.log_file.open("rb") as log:
            log.seek(mark)
            return log.read().decode(errors="replace")

    def wait_for_log(self, pattern: str, mark: int, seconds: float, *, times: int = 1) -> None:
        """Waits until the log after ``mark`` matches ``times`` times, while the process lives."""
        deadline = time.monotonic() + seconds
        while len(re.findall(pattern, self.log_since(mark))) < times:
            assert self.pid is not None, f"the process has ended: {self.tail()}"
            assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {times} x {pattern!r} in: {self.tail()}"
            time.sleep(POLL_SECONDS)

    def tail(self) -> str:
        """The end of the log."""
        return self.log_since(max(0, self.log_file.stat().st_size - 6000))


def _began(pid: int) -> int | None:
    """When a process began, in the kernel's ticks since boot: with it a process id is never mistaken for that of a later process."""
    try:
        # After the name, which is in parentheses and may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])
