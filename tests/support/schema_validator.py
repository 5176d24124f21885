"""The validator of JSON schemas, without the format of IRIs, which no schema of ours has.

Where the release tools are installed jsonschema would build 38 grammars for it, in each process and for some seconds. The schema of a bill
of materials has that format: tests/release/test_release.py checks it in a process of its own.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]

from jsonschema import Draft202012Validator  # noqa: E402

__all__ = ["Draft202012Validator"]
