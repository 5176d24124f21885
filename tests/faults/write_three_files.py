"""Creates three files between two marks that a tracer sees, and tells the calls as JSON."""

import json
import os
import sys

from recorded_calls import RecordedCalls

from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.store import Ownership

BEGIN, END = "/the-writing-begins", "/the-writing-ends"
# Only root may give a file away.
OWNER = Ownership(4711, 4712, 0o640) if os.getuid() == 0 else Ownership(os.getuid(), os.getgid(), 0o640)
NAMES = [f"{offset:020d}.snapshot" for offset in (10, 20, 30)]


def main(directory: str) -> None:
    calls = RecordedCalls(is_looking_at_created_files=False)
    os.path.lexists(BEGIN)
    for name in NAMES:
        create_file(directory, name, name.encode() * 20, owner=OWNER, temporary_name=f"{name}.tmp", calls=calls)
    os.path.lexists(END)
    print(json.dumps([[call.method, call.file] for call in calls.trace]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
