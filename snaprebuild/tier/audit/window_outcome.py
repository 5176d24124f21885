"""What the replay of a window adds to the result of ``verify``."""

from __future__ import annotations

import msgspec

from snaprebuild.snapshots.verify import VerifyOutcome

__all__ = ["WindowOutcome"]


class WindowOutcome(VerifyOutcome):
    """The result of a window. Names are those of snapshots in the directory.

    Attributes:
        consistent: why each of some snapshots is consistent.
        suspect: why each of some snapshots may be wrong.
        noted: why each of some snapshots may be wrong if brokers keep idle producers for longer.
        resume_at: segments that begin here or above are replayed next, without those below, which are damaged; None if none is.
    """

    consistent: dict[str, str] = msgspec.field(default_factory=dict)
    suspect: dict[str, str] = msgspec.field(default_factory=dict)
    noted: dict[str, str] = msgspec.field(default_factory=dict)
    resume_at: int | None = None

    def take(self, judged: WindowOutcome) -> None:
        """Adds the verdicts on segments that were read, or on some of them."""
        self.add(judged)
        self.consistent |= judged.consistent
        self.suspect |= judged.suspect
        self.noted |= judged.noted
        if self.resume_at is None:
            self.resume_at = judged.resume_at
