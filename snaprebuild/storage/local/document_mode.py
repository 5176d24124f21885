"""The mode of documents that a run leaves outside of log directories: receipts, plans, reports. Snapshots have that of their segment."""

from __future__ import annotations

__all__ = ["document_mode", "respect_umask"]

_umask = 0


def respect_umask(umask: int) -> None:
    """From now on documents have no permission that this umask takes away.

    Args:
        umask: that the command was started with. Its own process has another one, because brokers must be able to read what it writes for
            them.
    """
    global _umask  # noqa: PLW0603
    _umask = umask


def document_mode() -> int:
    """Permission bits of a new document: 0644 less the umask."""
    return 0o644 & ~_umask
