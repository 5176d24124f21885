"""Creates three files, for a tracer that attaches first: says "ready", waits for a byte, writes, tells the calls as JSON."""

import ctypes
import json
import os
import select
import sys

from recorded_calls import RecordedCalls

from snaprebuild.storage.local.publish import create_file
from snaprebuild.storage.store import Ownership

BEGIN, END = "/the-writing-begins", "/the-writing-ends"
# Only root may give a file away.
OWNER = Ownership(4711, 4712, 0o640) if os.getuid() == 0 else Ownership(os.getuid(), os.getgid(), 0o640)
NAMES = [f"{offset:020d}.snapshot" for offset in (10, 20, 30)]
DATA = {name: name.encode() * 20 for name in NAMES}
PR_SET_PTRACER, PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)


def main(directory: str) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0)  # the tracer is no parent of ours
    calls = RecordedCalls(is_looking_at_created_files=False)
    print("ready", flush=True)  # noqa: T201
    # Not in a read: a tracer that attaches in the middle of a call counts it or not, as it happens to come.
    select.select([0], [], [])
    os.read(0, 1)
    os.path.lexists(BEGIN)
    for name in NAMES:
        create_file(directory, name, DATA[name], owner=OWNER, temporary_name=f"{name}.tmp", calls=calls)
    os.path.lexists(END)
    print(json.dumps([[call.method, call.file] for call in calls.trace]))  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1])
