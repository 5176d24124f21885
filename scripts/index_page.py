"""Makes the page of the project in a package index: its addresses, and README with links that work there.

Hatchling calls it when it builds a wheel or an sdist. The address comes from ``PROJECT_URL``, such as ``https://git.example/snaprebuild``;
`scripts/release/make_release.py --url` sets it. Without it no address is named, and links stay as README has them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

__all__ = ["CustomMetadataHook", "absolute_links"]

RELATIVE = re.compile(r"(?P<before>\]\(|^\[[^\]\n]+\]: )(?!https?://|#|mailto:)(?P<path>[^\s)]+)", re.MULTILINE)
"""A link to a file of the checkout: ``[text](path)``, or ``[name]: path`` at the begin of a line."""


class CustomMetadataHook(MetadataHookInterface):
    """The name is the one that hatchling looks for."""

    def update(self, metadata: dict[str, object]) -> None:
        """Sets ``readme`` and ``urls``."""
        readme = (Path(self.root) / "README.md").read_text()
        url = os.environ.get("PROJECT_URL", "").rstrip("/")
        if url:
            revision = os.environ.get("SOURCE_COMMIT") or "HEAD"
            readme = absolute_links(readme, f"{url}/blob/{revision}/")
            metadata["urls"] = {
                "Homepage": url,
                "Documentation": f"{url}/blob/{revision}/docs/index.md",
                "Changelog": f"{url}/blob/{revision}/CHANGELOG.md",
                "Security": f"{url}/blob/{revision}/SECURITY.md",
            }
        else:
            metadata["urls"] = {}
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}


def absolute_links(markdown: str, base: str) -> str:
    """The text with each link to a file of the checkout below ``base``, which ends with a slash."""
    return RELATIVE.sub(lambda match: f"{match['before']}{base}{match['path']}", markdown)
