"""A line from tasks to the driver: what has to be known there before a task goes on.

Tasks of Spark do not know of each other, and the driver hears of them when their rows return. Two things cannot wait for that: the limits
of a run, which are limits of all its tasks together, and a receipt, which has to list a file before the file has its name. So the driver
listens as long as a job runs, and answers one call after the other. Whoever calls proves to know a secret that came with the task; where
the driver is gone, nobody answers, and the task does nothing more.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import secrets
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from typing import Any

import pyarrow as pa
from pyspark import SparkContext

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.engine.schedule import told
from snaprebuild.spark.worker_process import settle
from snaprebuild.storage.io_limits.policy import USUAL_MANNERS, Manners, manners, take_part
from snaprebuild.storage.s3.request_limits import count_elsewhere, meter_of

__all__ = ["PORT_SETTING", "Caller", "DriverLine", "Hear", "listening"]

PORT_SETTING = "spark.snaprebuild.port"
"""Setting of the session: the port that the driver listens on, for where not every port leads there; 0, the default, for any."""

CONNECT_SECONDS = 60

CLOSE_SECONDS = 1.0
"""Waited for the thread that listens, where a system does not wake it when its socket is closed."""

PORT_MAX = 65535

BACKLOG = 1024
"""Tasks that begin at the same moment."""

CALL_BYTES_MAX = 1 << 20
"""A call tells of one file, or of one request."""

Hear = Callable[[int, Any], None]
"""Told the number of a work and what its job says; raises what the job is to end with."""

Tasks = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class DriverLine:
    """Where the driver listens, as a value that travels to tasks.

    Attributes:
        host: name or address, with ``port``.
        secret: whoever knows it may call.
        manners: of each task; nobody asks the driver before each block, so that a budget is shared out among the cores.
    """

    host: str
    port: int
    secret: bytes = field(repr=False)
    manners: Manners = USUAL_MANNERS

    def around(self, function: Tasks) -> Tasks:
        """The function of a task, in which limits are those of the whole run, and files are read as it reads them."""
        return _Within(self, function)

    def call(self, number: int | None, said: Any) -> None:
        """Says something to the driver, and waits for it.

        Args:
            number: of the work that is told; None for what is counted.
            said: something that can be pickled.

        Raises:
            SnaprebuildError: the driver says so.
            RefusedError: the driver does not answer.
        """
        lines = _lines_to(self)
        try:
            connection = self._connected(lines)
            connection.send((number, said))
            answer = connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            where = f"the driver does not answer at {self.host}:{self.port} ({type(error).__name__}; {PORT_SETTING} sets the port)"
            raise RefusedError(f"{where}: nothing is done that it does not know of") from error
        lines.append(connection)
        if answer is not None:
            raise answer

    def _connected(self, lines: deque[Connection]) -> Connection:
        with contextlib.suppress(IndexError):  # of several threads each takes one
            return lines.pop()
        caller = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
        caller.settimeout(None)  # an answer takes as long as it takes
        connection = Connection(caller.detach())
        answer_challenge(connection, self.secret)
        deliver_challenge(connection, self.secret)
        return connection

    def count(self, run: str, kind: int, count: int, most: int, option: str) -> None:
        """As ``meter.Counter``: the driver counts."""
        self.call(None, (run, kind, count, most, option))


@dataclass(frozen=True, slots=True)
class Caller:
    """What the job of a work says goes to that work.

    Attributes:
        line: to the driver.
        number: of the work.
    """

    line: DriverLine
    number: int

    def __call__(self, said: object) -> None:
        """Raises as ``DriverLine.call``."""
        self.line.call(self.number, said)


@dataclass(frozen=True, slots=True)
class _Within:
    line: DriverLine
    function: Tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # And not taken back: what is still on its way when a task ends is no business of anybody else.
        count_elsewhere(self.line.count)
        take_part(self.line.manners)
        yield from self.function(batches)
        settle()


_idle: dict[tuple[int, DriverLine], deque[Connection]] = {}


def _lines_to(line: DriverLine) -> deque[Connection]:
    """Of this process, to that driver, which nobody uses now. Those to others end with the job that they were for."""
    key = os.getpid(), line
    if key not in _idle:
        _idle.clear()
    return _idle.setdefault(key, deque())


# ---------------------------------------------------------------------------------------------------------------- the driver


class _Listener:
    """Answers calls, each line in a thread of its own."""

    def __init__(self, server: socket.socket, secret: bytes, hear: Hear | None) -> None:
        self._server = server
        self._secret = secret
        self._hear = hear
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_over = False

    def listen(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:  # it was closed
                return
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            threading.Thread(target=self._answer, args=(caller,), name="driver line", daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller, Connection(os.dup(caller.fileno())) as connection:
            with self._lock:
                if self._is_over:
                    return
                self._open.add(caller)
            with contextlib.suppress(OSError, EOFError, AuthenticationError):
                deliver_challenge(connection, self._secret)
                answer_challenge(connection, self._secret)
                while True:
                    number, said = pickle.loads(connection.recv_bytes(CALL_BYTES_MAX))  # noqa: S301  of our own tasks, which know the secret
                    connection.send(self._answer_to(number, said))
            with self._lock:
                self._open.discard(caller)

    def _answer_to(self, number: int | None, said: Any) -> Exception | None:
        try:
            if number is None:
                run, *what = said
                meter_of(run).take(*what)
            elif self._hear is not None:
                self._hear(number, said)
        except Exception as error:  # the task ends with it
            return told(error)
        return None

    def close(self) -> None:
        """Nobody is answered any more."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes whoever waits for a call
        self._server.close()
        with self._lock:
            self._is_over = True
            for caller in self._open:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def listening(context: SparkContext, hear: Hear | None = None) -> Iterator[DriverLine]:
    """Listens on the driver as long as a job runs.

    Args:
        context: of Spark, whose executors reach the driver by its address.
        hear: told what jobs say, by several threads at once; None where none says anything.

    Raises:
        RefusedError: nobody can listen there.
    """
    conf = context.getConf()
    host = "127.0.0.1" if str(context.master).startswith("local") else str(conf.get("spark.driver.host", "127.0.0.1"))
    bound = host if host == "127.0.0.1" else str(conf.get("spark.driver.bindAddress", host))
    try:
        port = int(str(conf.get(PORT_SETTING, "0")))
        if not 0 <= port <= PORT_MAX:
            raise ValueError(f"there is no port {port}")
        address = socket.getaddrinfo(bound.strip("[]"), None, type=socket.SOCK_STREAM)[0]
        server = socket.create_server((str(address[4][0]), port), family=address[0], backlog=BACKLOG)
    except (OSError, ValueError) as error:
        raise RefusedError(f"the driver cannot listen at {bound}, where tasks would call it ({error}; {PORT_SETTING})") from error
    secret = secrets.token_bytes(32)
    listener = _Listener(server, secret, hear)
    thread = threading.Thread(target=listener.listen, name="driver line", daemon=True)
    thread.start()
    try:
        each = manners().share_of(context.defaultParallelism)
        yield DriverLine(host.strip("[]"), server.getsockname()[1], secret, each)
    finally:
        listener.close()
        thread.join(CLOSE_SECONDS)
