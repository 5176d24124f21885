#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../run" "$0" "$@"'
# needs: package
"""Makes fixtures/damaged/<name>/: small directories of a real broker, each with one thing wrong, and the healthy ones they come from.

Everything follows from the bundled `follower-lost-state` (4.3.1, `payments-0` and its copies in remote storage) and
`kraft-metadata-moved`, so the same bytes come out each time. `--check` fails where what is committed is not what would be made.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from control_cases import HEALTHY, Files, read_below
from known_corruptions import CORRUPTIONS

ROOT = Path(__file__).resolve().parents[2]

__all__ = ["corrupted_directories", "differences", "write"]

DAMAGED = ROOT / "fixtures" / "damaged"


def corrupted_directories() -> dict[str, Files]:
    """All directories by name, healthy ones below ``healthy/``."""
    healthy = {name: make() for name, make in HEALTHY.items()}
    directories = {f"healthy/{name}": files for name, files in healthy.items()}
    for name, corruption in CORRUPTIONS.items():
        files = dict(healthy[corruption.healthy])
        corruption.change(files)
        assert files != healthy[corruption.healthy], name
        directories[name] = files
    return directories


def table() -> dict[str, Any]:
    """The table that the test reads: of each known corruption its control case and the findings that show it."""
    return {
        name: {
            "what": corruption.what,
            "healthy": f"healthy/{corruption.healthy}",
            "findings": [vars(each) for each in corruption.findings],
        }
        for name, corruption in CORRUPTIONS.items()
    }


PAGE = """# Known corruptions

Each directory has one thing wrong. Otherwise it equals its control case, one of these healthy directories:

* `healthy/log` and `healthy/longer-log`: a log from offset 0;
* `healthy/node`: a node whose log begins where remote storage ends;
* `healthy/tier`: remote storage, and what the metadata log said of it;
* `healthy/controller`: a metadata log that begins at a checkpoint.

Those are cut out of `follower-lost-state` and `kraft-metadata-moved`, so brokers of 4.3.1 wrote their bytes.
`scripts/faults/make_corruptions.py` makes all of it, and this page.
`tests/faults/test_known_corruptions.py` reads `corruptions.json` and runs the verbs on each corruption and its control case.
`logs` is none of these: two partitions of a broker of 2.7.2, as large as they were.

| corruption | control case | what happened | found by, as |
|---|---|---|---|
"""


def page() -> str:
    """README.md."""
    rows = []
    for name, corruption in CORRUPTIONS.items():
        findings = "; ".join(
            f"`{verb_of(each.arguments)}`: `{each.code}`{f', `{each.reason}`' if each.reason else ''}"
            for each in corruption.findings
        )
        rows.append(f"| `{name}` | {corruption.healthy} | {corruption.what} | {findings} |\n")
    return PAGE + "".join(rows)


def verb_of(arguments: str) -> str:
    """The verb, without its options."""
    return " ".join(word for word in arguments.split()[:2] if "{}" not in word)


def write(root: Path) -> None:
    """Makes all of it anew; nothing else below ``root`` is touched."""
    directories = corrupted_directories()
    for name in (*CORRUPTIONS, "healthy"):
        shutil.rmtree(root / name, ignore_errors=True)
    for name, files in directories.items():
        for path, data in files.items():
            (root / name / path).parent.mkdir(parents=True, exist_ok=True)
            (root / name / path).write_bytes(data)
    (root / "corruptions.json").write_text(json.dumps(table(), indent=1) + "\n")
    (root / "README.md").write_text(page())


def differences(root: Path) -> list[str]:
    """Paths at which what is committed is not what would be made."""
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory))
        expected = read_below(Path(directory))
    committed: dict[str, bytes] = {}
    for name in (*CORRUPTIONS, "healthy"):
        committed |= {f"{name}/{path}": data for path, data in read_below(root / name).items()}
    committed |= {name: (root / name).read_bytes() for name in ("corruptions.json", "README.md")}
    return sorted(path for path in expected.keys() | committed.keys() if expected.get(path) != committed.get(path))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 where something differs")
    if not parser.parse_args().check:
        write(DAMAGED)
        print(f"{len(CORRUPTIONS)} known corruptions, {len(HEALTHY)} healthy directories")
        return 0
    different = differences(DAMAGED)
    print("\n".join(different) or "what is committed is what is made")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
