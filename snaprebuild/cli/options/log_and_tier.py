"""Options of the verbs on a log and its remote storage."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["LogPath", "StoreAndPath"]


LogPath = Annotated[str, typer.Argument(metavar="PATH", hidden=True)]


StoreAndPath = Annotated[list[str], typer.Argument(metavar="[STORE] PATH", hidden=True)]
"""STORE comes first, as with each verb that needs one."""
