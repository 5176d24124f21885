"""Which tests go to the same process of pytest-xdist, and which are begun first.

What a module makes once (a broker, a cluster, a copy of everything in an object store) shall be made once: a file goes to one process as
a whole. So do all tests of one Spark session, which takes ten seconds to start and the memory of a JVM. Marks ``xdist_group`` would say the
same, but xdist 3.8 finds none of them with pytest 9.2, and says nothing.
"""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling

SPARK = "tests/spark"
WITHOUT_A_SESSION = tuple(
    f"{SPARK}/test_{name}.py"
    for name in (
        *("any_packing", "data_sources", "driver_line", "effect_files", "interrupts", "pushed_filters", "rows", "run_limits"),
        *("scale_model", "segment_parts", "session"),
    )
)
"""Of that directory: they start none, or their own."""
LONGEST = (
    SPARK,
    "tests/spark/test_any_packing.py",
    "tests/cli/test_object_stores.py",
    "tests/cli/test_streams.py",
    "tests/cli/test_hook_run.py",
    "tests/operations/test_upload_crashes.py",
    "tests/broker/test_tiered_storage.py",
    "tests/broker/test_produced_records.py",
    "tests/broker/test_every_version.py",
    "tests/broker/test_answers.py",
    "tests/broker/test_dump_log_segments.py",
    "tests/broker/test_receipt.py",
    "tests/broker/test_random_logs.py",
    "tests/replay/test_segment_ranges.py",
)
"""Groups that take minutes, the longest first: begun at the end, one of them would run while another process has nothing to do."""


def group_of(nodeid: str) -> str:
    """The group of a test by its name."""
    file = nodeid.partition("::")[0]
    return SPARK if file.startswith(f"{SPARK}/") and file not in WITHOUT_A_SESSION else file


def place_of(item: pytest.Item) -> int:
    """For sorting: the longest groups, then all others as they were collected."""
    group = group_of(item.nodeid)
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)


class GroupScheduling(LoadScopeScheduling):
    """Hands out whole groups, in the order of collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
