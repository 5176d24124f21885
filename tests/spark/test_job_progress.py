"""The progress of a job covers bytes that must have been read by then: never more, each byte once, and all of them in the end."""

import random

from snaprebuild.spark.job_progress import ReadProgress


def followed(sizes: list[int], others: tuple[int, ...] = (0,)) -> tuple[ReadProgress, list[int]]:
    shown: list[int] = []
    return ReadProgress(lambda _, size_bytes: shown.append(size_bytes), sizes, others), shown


def test_the_least_that_the_ended_tasks_have_read() -> None:
    progress, shown = followed([5, 1, 3], (0, 1))
    progress.update([(10, 1, 1)])  # the task that hands in the rows
    progress.update([(10, 1, 1), (11, 4, 1)])  # of four tasks one reads nothing, maybe this one
    assert shown == []
    progress.update([(11, 4, 2)])
    assert shown == [1]
    progress.update([(11, 4, 4), (12, 4, 1)])
    assert shown == [1, 8]
    progress.update([(12, 4, 4), (11, 4, 4)])
    progress.end()
    assert sum(shown) == 9


def test_a_stage_that_begins_anew_shows_nothing_twice() -> None:
    progress, shown = followed([4, 4])
    for ended in (1, 0, 1, 2, 1):
        progress.update([(3, 2, ended)])
    progress.end()
    assert shown == [4, 4]


def test_any_order_of_reports() -> None:
    chance = random.Random(5)
    for _ in range(200):
        sizes = [chance.randrange(100) for _ in range(chance.randrange(1, 9))]
        order = chance.sample(range(len(sizes)), len(sizes))
        progress, shown = followed(sizes)
        for ended in range(len(sizes) + 1):
            progress.update([(7, len(sizes), ended)])
            assert sum(shown) <= sum(sizes[at] for at in order[:ended])
        progress.end()
        assert sum(shown) == sum(sizes)
