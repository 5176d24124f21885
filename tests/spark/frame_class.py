"""The class of DataFrames that have a driver of their own, by release of pyspark."""

import importlib
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["frame_class"]


def frame_class() -> "type[DataFrame]":
    """Since 4.0 ``pyspark.sql.DataFrame`` is the base of this class and of that of Spark Connect."""
    try:
        module = importlib.import_module("pyspark.sql.classic.dataframe")
    except ImportError:
        module = importlib.import_module("pyspark.sql.dataframe")
    return cast("type[DataFrame]", module.DataFrame)
