"""Bundled archives, unpacked."""

import tarfile
from pathlib import Path


def unpack(archive: Path, target: Path) -> None:
    """All files of an archive. The Python of Debian 12 has no filters yet, and later ones warn where none is named."""
    filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as opened:
        opened.extractall(target, **filters)  # type: ignore[arg-type]
