"""A channel from Spark tasks to the driver, for what the driver must handle before a task continues.

The driver gets the rows of a task when the task ends. The limits of a run cannot wait for that, because they hold for all its tasks
together.
So the driver listens as long as a job runs, and answers one call after the other. A caller proves that it has a secret that came
with the task. If the driver is gone, the call fails, and the task ends.
"""

from __future__ import annotations

import contextlib
import functools
import gc
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
from snaprebuild.snapshots.engine.partition_task import to_domain_error
from snaprebuild.snapshots.receipts.receipt_parts import end_own_parts
from snaprebuild.storage.io_limits.policy import NO_IO_LIMITS, IoLimits, current_limits
from snaprebuild.storage.s3.request_limits import meter_of, meters

__all__ = ["PORT_SETTING", "DriverChannel", "listening"]

PORT_SETTING = "spark.snaprebuild.port"
"""Setting of the session: the port that the driver listens on, for networks that block other ports; 0, the default, for any."""

CONNECT_SECONDS = 60

CLOSE_SECONDS = 1.0
"""How long to wait for the thread that listens, if the system does not wake it when its socket is closed."""

PORT_MAX = 65535

BACKLOG = 1024
"""Tasks that begin at the same moment."""

CALL_BYTES_MAX = 1 << 20
"""A call is about one file, or one request."""

Tasks = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class DriverChannel:
    """The address of the driver, as a value that is sent to tasks.

    Attributes:
        secret: a caller must have it.
        io_limits: how each task reads. A task does not call before each block, so a budget is divided among the cores.
    """

    host: str
    port: int
    secret: bytes = field(repr=False)
    io_limits: IoLimits = NO_IO_LIMITS

    def wrap(self, function: Tasks) -> Tasks:
        """The function of a task, under the limits of the whole run."""
        return _Wrapped(self, function)

    def count(self, run: str, kind: int, count: int, most: int, option: str) -> None:
        """Counts requests and bytes of the run (``meter.Counter``): the driver adds them up.

        Raises:
            SnaprebuildError: the driver answers with it.
            RefusedError: the driver does not answer.
        """
        idle = _idle_to(self)
        try:
            connection = self._connected(idle)
            connection.send((run, kind, count, most, option))
            answer = connection.recv()
        except (OSError, EOFError, AuthenticationError) as error:
            where = f"the driver does not answer at {self.host}:{self.port} ({type(error).__name__}; {PORT_SETTING} sets the port)"
            raise RefusedError(f"{where}: nothing is done without its answer") from error
        idle.append(connection)
        if answer is not None:
            raise answer

    def _connected(self, idle: deque[Connection]) -> Connection:
        with contextlib.suppress(IndexError):  # several threads each take one
            return idle.pop()
        caller = socket.create_connection((self.host, self.port), CONNECT_SECONDS)
        caller.settimeout(None)  # the answer may take any time
        connection = Connection(caller.detach())
        answer_challenge(connection, self.secret)
        deliver_challenge(connection, self.secret)
        return connection


@dataclass(frozen=True, slots=True)
class _Wrapped:
    channel: DriverChannel
    function: Tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # It stays so after the task: requests that are still open then belong to it.
        meters.counter = self.channel.count
        current_limits().apply(self.channel.io_limits)
        try:
            yield from self.function(batches)
        finally:
            end_own_parts()
        _freeze_modules()


@functools.cache
def _freeze_modules() -> None:
    """Exempts from the collector of cycles what is alive when the first task of a process ends: modules for the most part.

    PySpark collects after every task (``pyspark.daemon``). Our imports have 140,000 objects, which take 0.07 s of the core. In that
    time a task can read 400 MiB of a segment from the page cache.
    """
    gc.freeze()


_idle: dict[tuple[int, DriverChannel], deque[Connection]] = {}


def _idle_to(channel: DriverChannel) -> deque[Connection]:
    """Idle connections of this process to that driver. Connections to other drivers end with their job."""
    key = os.getpid(), channel
    if key not in _idle:
        _idle.clear()
    return _idle.setdefault(key, deque())


# ---------------------------------------------------------------------------------------------------------------- the driver


class _Listener:
    """Answers calls, each connection in a thread of its own."""

    def __init__(self, server: socket.socket, secret: bytes) -> None:
        self._server = server
        self._secret = secret
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
            threading.Thread(target=self._answer, args=(caller,), name="driver channel", daemon=True).start()

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
                    call = pickle.loads(connection.recv_bytes(CALL_BYTES_MAX))  # noqa: S301  of our own tasks, which have the secret
                    connection.send(self._answer_to(call))
            with self._lock:
                self._open.discard(caller)

    def _answer_to(self, call: Any) -> Exception | None:
        try:
            run, *what = call
            meter_of(run).take(*what)
        except Exception as error:  # the task ends with it
            return to_domain_error(error)
        return None

    def close(self) -> None:
        """Ends all connections."""
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for a call
        self._server.close()
        with self._lock:
            self._is_over = True
            for caller in self._open:
                with contextlib.suppress(OSError):
                    caller.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def listening(context: SparkContext) -> Iterator[DriverChannel]:
    """Listens on the driver as long as a job runs.

    Args:
        context: of Spark, whose executors reach the driver by its address.

    Raises:
        RefusedError: the port cannot be opened.
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
    listener = _Listener(server, secret)
    thread = threading.Thread(target=listener.listen, name="driver channel", daemon=True)
    thread.start()
    try:
        each = current_limits().io.share_of(context.defaultParallelism)
        yield DriverChannel(host.strip("[]"), server.getsockname()[1], secret, each)
    finally:
        listener.close()
        thread.join(CLOSE_SECONDS)
