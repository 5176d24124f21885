"""Producer-snapshot recovery for Apache Kafka log directories.

The names in ``__all__`` are the library (docs/reference/api.md): ``scan``, ``plan``, ``rebuild``, ``verify`` and ``audit`` (of remote
storage) are the commands as functions. ``records`` gives the records of partitions as batches of Arrow. ``LogDir``, ``Partition``,
``ensure_snapshot``, ``prepare_upload`` and ``validate_snapshot`` are for uploaders. Each name is loaded when it is first used.

Everything else belongs to the command: ``snaprebuild.replay`` computes what a log implies for its producers, ``snaprebuild.storage`` reads
and writes files and objects, ``snaprebuild.snapshots`` makes producer snapshots, and ``snaprebuild.cli`` prints results.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING

import formats

if TYPE_CHECKING:
    from snaprebuild.documents.plan import (
        PlanDocument,
        PlannedPartition,
    )
    from snaprebuild.documents.rebuild import (
        Rebuild,
        RebuiltPartition,
    )
    from snaprebuild.documents.records import (
        RecordRange,
    )
    from snaprebuild.documents.scan import (
        Scan,
    )
    from snaprebuild.documents.tier import (
        AuditedPartition,
        TierAudit,
    )
    from snaprebuild.documents.verify import (
        VerifiedPartition,
        Verify,
    )
    from snaprebuild.errors import (
        OutcomeUnknownError,
        ReadFailedError,
        RefusalReason,
        RefusedError,
        SnaprebuildError,
        SnapshotRefusedError,
        StorageError,
        UploadRefusalReason,
        UploadRefusedError,
        UsageError,
        WriteFailedError,
    )
    from snaprebuild.findings import (
        ReportedFinding,
    )
    from snaprebuild.hooks import (
        EnsuredSnapshot,
        LogDir,
        Origin,
        Partition,
        PreparedUpload,
        ReplayOptions,
        Segment,
        ValidatedSnapshot,
        Validity,
        ensure_snapshot,
        prepare_upload,
        validate_snapshot,
    )
    from snaprebuild.library.call_engine import (
        CallEngine,
    )
    from snaprebuild.library.record_stream import (
        RecordStream,
        records,
    )
    from snaprebuild.library.tier_verbs import (
        audit,
    )
    from snaprebuild.library.verb_result import (
        PlanResult,
        Result,
    )
    from snaprebuild.library.verbs import (
        plan,
        rebuild,
        scan,
        verify,
    )
    from snaprebuild.replay.classes import (
        SnapshotClass,
    )
    from snaprebuild.snapshots.engine.partition_replay import (
        ReplayFrom,
    )
    from snaprebuild.snapshots.scan.scan_parts import (
        ScannedPartition,
    )
    from snaprebuild.storage.store import (
        S3Settings,
    )

__version__ = "0.1.0"

__all__ = [
    "AuditedPartition",
    "CallEngine",
    "EnsuredSnapshot",
    "LogDir",
    "Origin",
    "OutcomeUnknownError",
    "Partition",
    "PlanDocument",
    "PlanResult",
    "PlannedPartition",
    "PreparedUpload",
    "ReadFailedError",
    "Rebuild",
    "RebuiltPartition",
    "RecordRange",
    "RecordStream",
    "RefusalReason",
    "RefusedError",
    "ReplayFrom",
    "ReplayOptions",
    "ReportedFinding",
    "Result",
    "S3Settings",
    "Scan",
    "ScannedPartition",
    "Segment",
    "SnaprebuildError",
    "SnapshotClass",
    "SnapshotRefusedError",
    "StorageError",
    "TierAudit",
    "UploadRefusalReason",
    "UploadRefusedError",
    "UsageError",
    "ValidatedSnapshot",
    "Validity",
    "VerifiedPartition",
    "Verify",
    "WriteFailedError",
    "__version__",
    "audit",
    "ensure_snapshot",
    "plan",
    "prepare_upload",
    "rebuild",
    "records",
    "scan",
    "validate_snapshot",
    "verify",
]

_MODULES = {
    "AuditedPartition": "snaprebuild.documents.tier",
    "CallEngine": "snaprebuild.library.call_engine",
    "EnsuredSnapshot": "snaprebuild.hooks",
    "LogDir": "snaprebuild.hooks",
    "Origin": "snaprebuild.hooks",
    "Partition": "snaprebuild.hooks",
    "PlanDocument": "snaprebuild.documents.plan",
    "PlanResult": "snaprebuild.library.verb_result",
    "PlannedPartition": "snaprebuild.documents.plan",
    "PreparedUpload": "snaprebuild.hooks",
    "Rebuild": "snaprebuild.documents.rebuild",
    "RebuiltPartition": "snaprebuild.documents.rebuild",
    "RecordRange": "snaprebuild.documents.records",
    "RecordStream": "snaprebuild.library.record_stream",
    "ReplayFrom": "snaprebuild.snapshots.engine.partition_replay",
    "ReplayOptions": "snaprebuild.hooks",
    "ReportedFinding": "snaprebuild.findings",
    "Result": "snaprebuild.library.verb_result",
    "S3Settings": "snaprebuild.storage.store",
    "Scan": "snaprebuild.documents.scan",
    "ScannedPartition": "snaprebuild.snapshots.scan.scan_parts",
    "Segment": "snaprebuild.hooks",
    "SnapshotClass": "snaprebuild.replay.classes",
    "TierAudit": "snaprebuild.documents.tier",
    "ValidatedSnapshot": "snaprebuild.hooks",
    "Validity": "snaprebuild.hooks",
    "VerifiedPartition": "snaprebuild.documents.verify",
    "Verify": "snaprebuild.documents.verify",
    "audit": "snaprebuild.library.tier_verbs",
    "ensure_snapshot": "snaprebuild.hooks",
    "plan": "snaprebuild.library.verbs",
    "prepare_upload": "snaprebuild.hooks",
    "rebuild": "snaprebuild.library.verbs",
    "records": "snaprebuild.library.record_stream",
    "scan": "snaprebuild.library.verbs",
    "validate_snapshot": "snaprebuild.hooks",
    "verify": "snaprebuild.library.verbs",
}


def foreign_formats() -> str | None:
    """Why nothing here can be loaded: the package ``formats`` that Python finds is not the one of this project. None if it is."""
    if getattr(formats, "DISTRIBUTION", None) == __name__:
        return None
    place = getattr(formats, "__file__", None) or ", ".join(map(str, formats.__path__))
    return f"the package `formats` belongs to another project: {place}. Install snaprebuild into an environment of its own"


if _foreign := foreign_formats():
    # No error yet: the command reports it with an exit code of its own, not with the 1 of an uncaught exception.
    warnings.warn(f"snaprebuild cannot be used: {_foreign}", RuntimeWarning, stacklevel=2)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if _foreign:
        raise ImportError(f"cannot import {name} from snaprebuild: {_foreign}")
    return getattr(import_module(_MODULES.get(name, "snaprebuild.errors")), name)


def __dir__() -> list[str]:
    return __all__
