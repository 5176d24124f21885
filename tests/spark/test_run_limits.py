"""The estimate before a job begins: whether its segments fit into the rest of the limits of its run."""

import random
import secrets

import pytest

from snaprebuild.errors import RefusedError
from snaprebuild.snapshots.engine.partition_task import PartitionTask
from snaprebuild.snapshots.engine.segment_reader import ReadTask
from snaprebuild.spark.run_limits import check_limits, limits_of_stores
from snaprebuild.storage.s3.request_limits import meter_of
from snaprebuild.storage.s3.store import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

pytestmark = pytest.mark.full

MIB = 1 << 20


class Reckoned(PartitionTask):
    """A task that needs something besides."""

    def __init__(self, asks: tuple[int, int] | None) -> None:
        self.asks = asks

    def needs(self) -> tuple[int, int] | None:
        return self.asks


def test_what_suffices_and_one_less() -> None:
    """Ranges of 8 MiB for each segment, what the jobs say, and what was used up before."""
    chance = random.Random(1)
    for _ in range(100):
        sizes = [chance.randrange(1, 40 * MIB) for _ in range(chance.randrange(1, 6))]
        more, used = (chance.randrange(5), chance.randrange(MIB)), chance.randrange(4)
        requests = sum(-(-size // (8 * MIB)) for size in sizes) + more[0] + used
        size_bytes = sum(sizes) + more[1] + used * 100
        for most, reported in (
            ((requests, size_bytes), None),
            ((requests - 1, size_bytes), f"max_requests {requests - 1} does not suffice: {requests - used} are needed"),
            ((requests, size_bytes - 1), f"max_read_bytes {size_bytes - 1} does not suffice"),
            ((None, size_bytes), None),
            ((requests, None), None),
        ):
            settings = S3Settings(max_requests=most[0], max_read_bytes=most[1], run=secrets.token_hex(8))
            for _ in range(used):
                meter_of(settings.run).request(settings.max_requests)
                meter_of(settings.run).read(100, settings.max_read_bytes)
            store = S3Store(settings)
            tasks = [
                ReadTask(f"s3://b/{at}", None, at, FileIdentity(size, 0, 0, "e"), True, store=store)
                for at, size in enumerate(sizes)
            ]
            jobs = [Reckoned(more), Reckoned(None)]
            if reported is None:
                check_limits(settings, tasks, jobs)
            else:
                with pytest.raises(RefusedError, match=reported):
                    check_limits(settings, tasks, jobs)


def test_files_have_no_limits() -> None:
    files = [ReadTask("/a", None, 0, FileIdentity(1 << 40, 0, 1), True)]
    check_limits(S3Settings(max_requests=9, max_read_bytes=9), files, [Reckoned((9, 9))])
    assert limits_of_stores([each.store for each in files]) is None
    assert limits_of_stores([files[0].store, S3Store(S3Settings(max_requests=9))]) == S3Settings(max_requests=9)
    assert limits_of_stores([S3Store(S3Settings())]) is None
