"""Where a release comes from: an in-toto statement with the provenance of SLSA 1.0.

The statement itself carries no signature. It is in SHA256SUMS, which ``scripts/release/make_release.py --sign`` signs.
"""

from __future__ import annotations

import json
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["commit_of", "statement"]

NAMESPACE = "urn:snaprebuild:"


def statement(
    root: Path,
    digests: Mapping[str, str],
    arguments: Mapping[str, object],
    epoch: int,
    locks: Mapping[str, str],
    packages: Sequence[str],
) -> str:
    """The provenance of a release, in JSON.

    Args:
        root: of the checkout that was built. Without git, no commit is named.
        digests: SHA-256 of each file of the release, hexadecimal, by its name.
        arguments: of the build.
        epoch: seconds since 1970, of the release.
        locks: SHA-256 of each file that names the packages and their hashes, hexadecimal, by its path in the checkout.
        packages: package URLs of what came from the building system: the Python and the libraries.
    """
    commit = commit_of(root)
    changed = _git(root, "status", "--porcelain")
    source: dict[str, object] = {
        "name": "source",
        "digest": {"gitCommit": commit},
        "annotations": {"uncommittedChanges": bool(changed)},
    }
    resolved: list[dict[str, object]] = [source] if commit else []
    resolved += [{"name": name, "digest": {"sha256": digest}} for name, digest in locks.items()]
    resolved += [{"uri": url} for url in packages]
    predicate = {
        "buildDefinition": {
            "buildType": f"{NAMESPACE}scripts/release/make_release.py",
            "externalParameters": dict(arguments),
            "internalParameters": {"SOURCE_DATE_EPOCH": epoch},
            "resolvedDependencies": resolved,
        },
        "runDetails": {
            "builder": {"id": f"{NAMESPACE}checkout", "version": {"python": platform.python_version()}},
        },
    }
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": predicate,
    }
    return json.dumps(document, indent=2) + "\n"


def commit_of(root: Path) -> str:
    """The commit that is checked out; empty without git."""
    return _git(root, "rev-parse", "HEAD")


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout.strip()
