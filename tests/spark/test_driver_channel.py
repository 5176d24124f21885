"""The channel from tasks to the driver, without Spark: other processes call this one."""

import multiprocessing
import secrets
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from faulty_store import faulty_store

from snaprebuild.errors import RefusedError, WriteFailedError
from snaprebuild.spark.driver_channel import PORT_SETTING, DriverChannel, JobChannel, listening
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits, limited_io
from snaprebuild.storage.s3.request_limits import meter_of, meters
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings

pytestmark = pytest.mark.full

CALLERS, EACH = 3, 40


class Session:
    """What is asked of a session of Spark."""

    def __init__(self, master: str = "local[2]", **settings: str) -> None:
        self.conf = {name.replace("_", "."): value for name, value in settings.items()}
        self.conf["spark.master"] = master


@pytest.fixture(autouse=True)
def _count_here_again() -> Iterator[None]:
    yield
    meters.counter = None


def read_objects(channel: DriverChannel, settings: S3Settings, results: Any) -> None:
    """In a process of its own: reads small objects, with threads, as long as it may."""
    meters.counter = channel.count
    refused: list[str] = []

    def read() -> None:
        try:
            for _ in range(EACH):
                S3Store(settings).read_small("s3://b/k", 100)
        except RefusedError as error:
            refused.append(error.message)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    results.put(refused)


def test_the_limits_of_a_run_are_those_of_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many requests come to the store as the run may send, not one less or more, and this process counts them all."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    context = multiprocessing.get_context("spawn")
    with faulty_store() as store:
        store.objects = {"b/k": b"12345"}
        for limits, allowed in (({"max_requests": 100}, 100), ({"max_read_bytes": 333}, 66)):
            store.seen.clear()
            settings = S3Settings(endpoint_url=store.endpoint, path_style=True, run=secrets.token_hex(8), **limits)
            results = context.Queue()
            with listening(Session()) as channel:  # type: ignore[arg-type]
                callers = [context.Process(target=read_objects, args=(channel, settings, results)) for _ in range(CALLERS)]
                for each in callers:
                    each.start()
                reported = [results.get(timeout=120) for _ in callers]
                for each in callers:
                    each.join()
            read = [body for method, body, _ in store.seen if method == "GET"]
            # Bytes are counted when the answer shows how many come: at the limit the request was sent.
            at_most = allowed if "max_requests" in limits else allowed + 4 * CALLERS
            assert allowed <= len(read) <= at_most
            meter = meter_of(settings.run)
            assert (meter.requests if "max_requests" in limits else meter.read_bytes // 5) == allowed
            for refused in reported:
                assert len(refused) == 4
                assert all("is used up" in message for message in refused)


def test_what_is_said_reaches_its_work() -> None:
    heard: list[tuple[int, Any]] = []

    def hear(number: int, said: Any) -> None:
        if said == "no":
            raise WriteFailedError("cannot be written: No space left on device", path="/receipt", errno=28)
        if said == "odd":
            raise ZeroDivisionError(said)
        heard.append((number, said))

    with listening(Session(), hear) as channel:  # type: ignore[arg-type]
        threads = [threading.Thread(target=lambda at=at: [JobChannel(channel, at)(each) for each in range(50)]) for at in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for number in range(8):
            assert [said for at, said in heard if at == number] == list(range(50))
        with pytest.raises(WriteFailedError, match="No space left on device") as failed:
            channel.call(3, "no")
        assert (failed.value.path, failed.value.errno) == ("/receipt", 28)
        with pytest.raises(Exception, match="unforeseen ZeroDivisionError: odd"):
            channel.call(3, "odd")
        channel.call(3, "and on")
    assert heard[-1] == (3, "and on")


def test_no_one_else_is_heard() -> None:
    heard: list[Any] = []
    with listening(Session(), lambda *said: heard.append(said)) as channel:  # type: ignore[arg-type]
        for secret in (b"", b"x" * 32):
            with pytest.raises(RefusedError, match="does not answer"):
                replace(channel, secret=secret).call(0, "stranger")
        with socket.create_connection((channel.host, channel.port)) as stranger:
            stranger.sendall(b"\x00\x00\x00\x04junk" * 10)
        channel.call(0, "friend")
    assert heard == [(0, "friend")]


def test_where_the_driver_is_gone_nothing_is_done() -> None:
    """A channel that was in use, and one that was not; what is asked for ends, too."""
    is_asked, waits = threading.Event(), threading.Event()
    ended: list[str] = []

    def hear(_: int, said: Any) -> None:
        if said == "waits":
            is_asked.set()
            waits.wait(300)

    def call_and_wait(channel: DriverChannel) -> None:
        try:
            channel.call(0, "waits")
        except RefusedError as error:
            ended.append(error.message)

    with listening(Session(), hear) as channel:  # type: ignore[arg-type]
        channel.call(0, "said")
        thread = threading.Thread(target=call_and_wait, args=(channel,))
        thread.start()
        assert is_asked.wait(120)
    thread.join(120)
    assert not thread.is_alive()
    assert len(ended) == 1
    waits.set()
    for _ in range(2):
        with pytest.raises(RefusedError, match=f"does not answer at 127.0.0.1:{channel.port} .*{PORT_SETTING}.*nothing is done"):
            channel.call(0, "said")


def at(port: str) -> Session:
    return Session(spark_snaprebuild_port=port)


def test_where_the_driver_listens() -> None:
    settings = {"spark_driver_host": "localhost", "spark_driver_bindAddress": "127.0.0.1"}
    with listening(Session(master="spark://h:7077", **settings)) as channel:  # type: ignore[arg-type]
        assert channel.host == "localhost"
        channel.count(secrets.token_hex(4), 0, 1, 1, "max_requests")
    with listening(Session()) as taken:  # type: ignore[arg-type]
        assert taken.host == "127.0.0.1"
        reported = f"cannot listen at 127.0.0.1.*{PORT_SETTING}"
        for port in (str(taken.port), "many", "70000"):
            with pytest.raises(RefusedError, match=reported), listening(at(port)):  # type: ignore[arg-type]
                pass
    for _ in range(2):
        with listening(at(str(taken.port))) as channel:  # type: ignore[arg-type]
            assert channel.port == taken.port
            channel.count(secrets.token_hex(4), 0, 1, 1, "max_requests")


def test_tasks_read_as_the_run_does() -> None:
    """A rate is shared out among the tasks of a stage."""
    with (
        limited_io(IoLimits(leaves_page_cache=True, bytes_per_second=1000, at_idle_priority=False)),
        listening(Session()) as channel,
    ):
        assert list(channel.wrap(iter, 4)([])) == []
        assert current_limits().io == IoLimits(leaves_page_cache=True, bytes_per_second=250)
