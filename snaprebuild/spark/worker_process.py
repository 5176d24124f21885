"""The Python processes that Spark keeps for its tasks, one after the other."""

from __future__ import annotations

import functools
import gc

__all__ = ["settle"]


@functools.cache
def settle() -> None:
    """Called at the end of tasks: what lives when the first one ends, modules for the most part, is exempted from the collector of cycles.

    PySpark collects after every task (``pyspark.daemon``). To go over the 140,000 objects of our imports takes 0.07 s of the core, about
    what a task needs to read 400 MiB of a segment from the page cache.
    """
    gc.freeze()
