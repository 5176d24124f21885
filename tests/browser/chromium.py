"""Which browser the tests of pages run."""

import os
import shutil

__all__ = ["NAMES", "program"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def program() -> str | None:
    """The browser: $CHROMIUM, or the first on the PATH."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
