"""Creates one file under real conditions and shows, as JSON, how that went."""

import argparse
import json
import os
import resource

from recorded_calls import RecordedCalls

from snaprebuild.errors import SnaprebuildError
from snaprebuild.storage.local.publish import create_file

NAME = "00000000000000000042.snapshot"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--file-size-limit", type=int)
    asked = parser.parse_args()
    if asked.file_size_limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked.file_size_limit, asked.file_size_limit))
    calls = RecordedCalls()
    reported = {"error": None, "errno": None, "text": ""}
    try:
        create_file(asked.directory, NAME, b"x" * asked.bytes, owner=None, temporary_name=f"{NAME}.tmp", calls=calls)
    except SnaprebuildError as error:
        reported = {"error": type(error).__name__, "errno": getattr(error, "errno", None), "text": str(error)}
    reported["left"] = os.listdir(asked.directory)
    reported["written_bytes"] = sum(call.result for call in calls.trace if call.method == "write" and call.result)
    print(json.dumps(reported))  # noqa: T201


main()
