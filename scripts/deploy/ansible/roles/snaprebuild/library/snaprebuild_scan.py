"""Ansible module: runs ``snaprebuild scan`` and returns its sums. A large broker has more JSON than a play should carry."""

from __future__ import annotations

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: snaprebuild_scan
short_description: Scan a broker for missing producer snapshots
description: Runs snaprebuild scan, which only reads.
options:
  argv:
    description: The command as a list of words, without --output and --save-json.
    type: list
    elements: str
    required: true
  save_json:
    description: Where to keep the whole document. Not written in check mode.
    type: path
"""
EXAMPLES = """
- snaprebuild_scan:
    argv: [snaprebuild, scan, --server-properties, /etc/kafka/server.properties]
"""
RETURN = """
missing: {description: Snapshots that are needed and absent., type: int, returned: always}
unread: {description: Paths that could not be read. The result does not cover them., type: int, returned: always}
messages: {description: Findings and notes of the scan., type: list, elements: str, returned: always}
running: {description: Whether a process holds a log directory., type: bool, returned: always}
node_id: {description: Id of the broker by meta.properties. None if no log directory has one., type: int, returned: always}
"""
DOCUMENT_CODES = (0, 1, 4)
"""Exit codes of a scan that printed a document: clean, findings, damaged input."""


def facts_of(document: dict[str, Any]) -> dict[str, Any]:
    """The facts of a ``scan`` document that the plays use."""
    return {
        "missing": document["totals"]["missing"],
        "unread": document["unread"],
        "running": any(each["held_by"] is not None for each in document["log_dirs"]),
        "node_id": next((each["node_id"] for each in document["log_dirs"] if each["node_id"] is not None), None),
    }


def main() -> None:
    """Runs the module."""
    options = {"argv": {"type": "list", "elements": "str", "required": True}, "save_json": {"type": "path"}}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    saves = module.params["save_json"] is not None and not module.check_mode
    save = ["--save-json", module.params["save_json"]] if saves else []
    code, output, errors = module.run_command([*module.params["argv"], "--output", "json", *save])
    if code not in DOCUMENT_CODES:
        module.fail_json(msg=f"scan failed with exit code {code}: {errors}", rc=code)
    module.exit_json(changed=saves, messages=errors.splitlines(), **facts_of(json.loads(output)))


if __name__ == "__main__":
    main()
