"""Types of members of our files and documents: what their values may be. ``msgspec`` checks them when it reads one."""

from __future__ import annotations

from typing import Annotated

import msgspec

from formats.limits import INT64_MAX, INT64_MIN

__all__ = ["Inode", "Int64", "Natural", "Positive", "Sha256"]

Natural = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
"""An offset, a size or a count."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=INT64_MAX)]

Int64 = Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)]

Inode = Annotated[int, msgspec.Meta(ge=0)]
"""Overlay file systems use all 64 bits."""

Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
