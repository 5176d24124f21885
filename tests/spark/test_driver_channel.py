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

from snaprebuild.errors import RefusedError
from snaprebuild.spark.driver_channel import PORT_SETTING, DriverChannel, listening
from snaprebuild.storage.io_limits.policy import IoLimits, current_limits, limited_io
from snaprebuild.storage.s3.request_limits import meter_of, meters
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import S3Settings

pytestmark = pytest.mark.full

CALLERS, EACH = 3, 40


class Context:
    """What is asked of a context of Spark."""

    defaultParallelism = 4  # noqa: N815  Spark's name

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.master = self.settings.pop("master", "local[2]")

    def getConf(self) -> dict[str, str]:  # noqa: N802  Spark's name
        return self.settings


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
            with listening(Context()) as channel:  # type: ignore[arg-type]
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


def test_no_one_else_is_heard() -> None:
    run = secrets.token_hex(4)
    with listening(Context()) as channel:  # type: ignore[arg-type]
        for secret in (b"", b"x" * 32):
            with pytest.raises(RefusedError, match="does not answer"):
                replace(channel, secret=secret).count(run, 0, 1, 9, "max_requests")
        with socket.create_connection((channel.host, channel.port)) as stranger:
            stranger.sendall(b"\x00\x00\x00\x04junk" * 10)
        channel.count(run, 0, 1, 9, "max_requests")
    assert meter_of(run).requests == 1


def at(port: str) -> Context:
    return Context(spark_snaprebuild_port=port)


def test_where_the_driver_listens() -> None:
    settings = {"spark_driver_host": "localhost", "spark_driver_bindAddress": "127.0.0.1"}
    with listening(Context(master="spark://h:7077", **settings)) as channel:  # type: ignore[arg-type]
        assert channel.host == "localhost"
        channel.count(secrets.token_hex(4), 0, 1, 1, "max_requests")
    with listening(Context()) as taken:  # type: ignore[arg-type]
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
    """A budget is shared out among the cores."""
    with (
        limited_io(IoLimits(leaves_page_cache=True, bytes_per_second=1000, at_idle_priority=False)),
        listening(Context()) as channel,
    ):
        assert list(channel.wrap(iter)([])) == []
        assert current_limits().io == IoLimits(leaves_page_cache=True, bytes_per_second=250)
