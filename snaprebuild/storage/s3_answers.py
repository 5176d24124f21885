"""Answers of an object store are not trusted to be what S3 gives: a gateway may leave out a field, or send a page of its own.

The SDK parses them with what Python raises for a wrong number, date or text. All of that becomes one error of the SDK here, which whoever
asks knows what to do with: to read again, or to take for unknown what became of a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError
from botocore.parsers import ResponseParserError

__all__ = ["MalformedAnswerError", "check_answers"]

_RAISED = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError, ResponseParserError)

_NEEDED: Mapping[str, Mapping[str, type]] = {
    "HeadObject": {"LastModified": datetime},
    "CreateMultipartUpload": {"UploadId": str},
    "UploadPart": {"ETag": str},
}
_ROWS: Mapping[str, Mapping[str, type]] = {
    "Contents": {"Key": str, "Size": int, "LastModified": datetime},
    "CommonPrefixes": {"Prefix": str},
    "Uploads": {"Key": str, "UploadId": str, "Initiated": datetime},
    "Parts": {"PartNumber": int, "Size": int, "ETag": str},
}
"""Fields that are relied on: of an answer, by operation, and of each row of a list, by its name."""


class MalformedAnswerError(BotoCoreError):  # type: ignore[misc]
    """An answer that S3 never gives."""

    fmt = "the answer to {operation} is none of S3"


def check_answers(client: Any) -> None:
    """From now on a client of the SDK raises ``MalformedAnswerError`` where an answer cannot be parsed, or lacks what is relied on."""
    call = client._make_api_call  # paginators come through it, too

    def checked(operation: str, given: Any) -> Any:
        try:
            answer = call(operation, given)
            is_whole = _has(answer, _NEEDED.get(operation, {})) and answer.get("ContentLength", 0) >= 0
            is_whole = is_whole and all(_has(row, kinds) for name, kinds in _ROWS.items() for row in answer.get(name, ()))
        except BotoCoreError:
            raise
        except _RAISED:
            raise MalformedAnswerError(operation=operation) from None
        if not is_whole:
            raise MalformedAnswerError(operation=operation)
        return answer

    client._make_api_call = checked


def _has(found: Mapping[str, Any], kinds: Mapping[str, type]) -> bool:
    return all(isinstance(found.get(name), kind) and (kind is not int or found[name] >= 0) for name, kind in kinds.items())
