"""Shares of a run's limits: together never more than the limits, each what is needed at least; a refusal where they do not suffice."""

from __future__ import annotations

import random
import secrets

import pytest

from snaprebuild.errors import RefusedError
from snaprebuild.operations.schedule import ReadTask
from snaprebuild.spark.run_limits import RunLimits, needs_of
from snaprebuild.storage.meter import held_to, meter_of
from snaprebuild.storage.s3 import S3Store
from snaprebuild.storage.store import FileIdentity, S3Settings

MIB = 1 << 20


def tasks(settings: S3Settings, chance: random.Random) -> list[ReadTask]:
    return [
        ReadTask(
            f"s3://b/{base}", None, base, FileIdentity(chance.randrange(1, 40 * MIB), 0, 0, "e"), True, store=S3Store(settings)
        )
        for base in range(chance.randrange(1, 6))
    ]


def test_shares_of_several_waves_stay_within_the_limits() -> None:
    chance = random.Random(1)
    for _ in range(200):
        most = chance.randrange(10, 200), chance.randrange(MIB, 2000 * MIB)
        settings = S3Settings(max_requests=most[0], max_read_bytes=most[1], run=secrets.token_hex(8))
        limits, given = RunLimits(), [0, 0]
        for number in range(4):
            limits.is_last_wave = number == 3
            wave = tasks(settings, chance)
            needed = [sum(needs_of(task)[kind] for task in wave) for kind in (0, 1)]
            if any(needed[kind] + given[kind] > most[kind] for kind in (0, 1)):
                with pytest.raises(RefusedError, match="does not suffice"):
                    limits.take({0: wave}, {0: None})  # type: ignore[dict-item]
                break
            shares, _ = limits.take({0: wave}, {0: None})  # type: ignore[dict-item]
            for task in wave:
                share, (requests, size) = shares[0, task.base_offset], needs_of(task)
                assert share.requests is not None
                assert share.read_bytes is not None
                assert share.requests >= requests
                assert share.read_bytes >= size
                given[0] += share.requests
                given[1] += share.read_bytes
            assert given[0] <= most[0]
            assert given[1] <= most[1]


def test_a_share_is_held_to_for_a_while() -> None:
    settings = S3Settings(max_requests=100, run=secrets.token_hex(8))
    meter = meter_of(settings.run)
    meter.request(settings)
    shares, _ = RunLimits().take({0: tasks(settings, random.Random(2))[:1]}, {0: None})  # type: ignore[dict-item]
    (share,) = shares.values()
    assert share.requests is not None
    with held_to(share):
        for _ in range(share.requests):
            meter.request(settings)
        with pytest.raises(RefusedError, match="what this task may use up of --max-requests 100 is used up"):
            meter.request(settings)
    meter.request(settings)
    assert meter.requests == share.requests + 2
