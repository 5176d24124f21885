"""Which options the help of a verb shows, in panels; all others are advanced, and ``--help-all`` shows them too."""

from __future__ import annotations

__all__ = ["ADVANCED", "GLOBAL", "PANELS", "panel_of"]

PANELS: dict[str, tuple[str, ...]] = {
    "Selection": (
        "--server-properties",
        "--topic",
        "--partition",
        "--topic-partition",
        "--producer-id",
        "--offset",
        "--timestamp",
        "--metadata-log",
        "--voter",
        "--deep",
        "--top",
        "--from",
        "--epoch-mode",
        "--search",
        "--policy",
    ),
    "Safety": (
        "--dry-run",
        "--plan",
        "--broker-running",
        "--receipt",
        "--deadline",
        "--i-am-the-leader",
        "--allow-unverified",
        "--fail-closed",
        "--produce-to",
    ),
    "Output": ("--to", "--out", "--save", "--html", "--title", "--elections", "--details", "--output"),
    "Load": ("--impact",),
}
"""Options by panel, in the order of the help."""

GLOBAL: dict[str, tuple[str, ...]] = {
    "Load, in detail": ("--max-read-rate", "--priority", "--max-memory", "--fill-page-cache", "--jobs", "--jobs-per-disk"),
    "Object stores": (
        "--s3-endpoint-url",
        "--s3-path-style",
        "--s3-profile",
        "--s3-anonymous",
        "--s3-requester-pays",
        "--s3-sse-c-key-file",
        "--max-requests",
        "--max-read-bytes",
    ),
    "Spark": ("--master", "--spark-conf", "--cache"),
}
"""Options that are accepted before the verb as well, and that the environment or a configuration file may set (``--impact`` too): none of
them permits a write or weakens evidence."""

ADVANCED = "Advanced"


def panel_of(option: str) -> str:
    """The panel that an option is in."""
    return next((name for name, options in (PANELS | GLOBAL).items() if option in options), ADVANCED)
