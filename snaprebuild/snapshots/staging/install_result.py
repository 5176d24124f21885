"""The result of an install."""

from __future__ import annotations

from dataclasses import dataclass, field

from snaprebuild.findings import Finding, exit_code_of
from snaprebuild.snapshots.rebuild.result import FAILED, REFUSED, SKIPPED, BoundaryResult, PartitionResult
from snaprebuild.snapshots.staging.staged_plan import StagedPartition, StagedPlan

__all__ = ["InstallResult", "InstalledPartition"]

_ACTIONS = {"refused": REFUSED, "deadline-passed": SKIPPED, "partition-gone": SKIPPED}
"""The action for the snapshots of a partition that was not looked at, by the code of the finding; else they failed."""


@dataclass(frozen=True, slots=True)
class InstalledPartition:
    """The result for a partition.

    Attributes:
        staged: what was staged for it.
        result: None where it could not be looked at.
        findings: about it.
        touched_at: base offset of the first segment that was touched since it was staged; None if there is none.
        not_linked: offsets of the snapshots that are replayed for it.
    """

    staged: StagedPartition
    result: PartitionResult | None
    findings: tuple[Finding, ...]
    touched_at: int | None = None
    not_linked: tuple[int, ...] = ()

    @property
    def boundaries(self) -> tuple[BoundaryResult, ...]:
        """By offset; of a partition that could not be read, none is installed."""
        if self.result is not None:
            return tuple(sorted(self.result.boundaries, key=lambda each: each.offset))
        finding = self.findings[0]
        why, action = (finding.message,), _ACTIONS.get(finding.code, FAILED)
        return tuple(BoundaryResult(each.offset, False, action, None, why) for each in self.staged.due)


@dataclass(slots=True)
class InstallResult:
    """The result for a staged plan.

    Attributes:
        plan: as it was read.
        is_dry_run: nothing was changed.
        partitions: in the order in which they were taken.
        receipt: path of the file that records what was linked; None where nothing was.
        general: findings about no partition.
        not_staged: snapshots that are missing in partitions of which nothing was staged.
        seconds: of each phase.
    """

    plan: StagedPlan
    is_dry_run: bool
    partitions: list[InstalledPartition] = field(default_factory=list)
    receipt: str | None = None
    general: list[Finding] = field(default_factory=list)
    not_staged: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All of them."""
        return (*self.general, *(finding for partition in self.partitions for finding in partition.findings))

    @property
    def exit_code(self) -> int:
        """By the worst finding."""
        return exit_code_of(self.findings)
