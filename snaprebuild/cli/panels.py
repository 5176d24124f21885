"""Which options the help of a verb shows, in panels; all others are advanced, and ``--help-all`` shows them too."""

from __future__ import annotations

__all__ = ["ADVANCED", "GLOBAL", "PANELS", "panel_of"]

PANELS: dict[str, tuple[str, ...]] = {
    "Selection": (
        "--server-properties",
        "--topic",
        "--topic-partition",
        "--producer-id",
        "--offset",
        "--sequence",
        "--timestamp",
        "--metadata-log",
        "--voter",
        "--deep",
        "--print-data-log",
        "--decoder",
        "--top",
        "--last",
        "--broker",
        "--since",
        "--from",
        "--until",
        "--key-format",
        "--value-format",
        "--purpose",
        "--profile",
        "--epoch-mode",
        "--scenario",
        "--search",
        "--policy",
        "--followers",
        "--start-rule",
        "--written-by",
        "--assume",
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
    "Output": (
        "--to",
        "--out",
        "--save",
        "--html",
        "--title",
        "--elections",
        "--records-file",
        "--log-dirs",
        "--quiet",
        "--output",
    ),
    "Load": ("--impact",),
}
"""Options by panel, in the order of the help."""

GLOBAL: dict[str, tuple[str, ...]] = {
    "Global": (
        "--jobs",
        "--engine",
        "--master",
        "--cache",
        "--s3-endpoint-url",
        "--set",
        "--config",
        "--save-json",
        "--metrics",
        "--verbose",
    ),
}
"""Options that many commands share."""

ADVANCED = "Advanced"


def panel_of(option: str) -> str:
    """The panel that an option is in."""
    return next((name for name, options in (PANELS | GLOBAL).items() if option in options), ADVANCED)
