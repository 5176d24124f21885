"""Ansible module: whether a new staged plan keeps every snapshot of the approved one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = """
module: snaprebuild_plan
short_description: Compare a new staged plan with the approved one
description: Fails if the approved plan has another SHA-256, or if the new plan has other bytes for one of its snapshots. Only reads.
options:
  plan:
    description: The new plan.
    type: path
    required: true
  approved:
    description: The copy of the approved plan.
    type: path
    required: true
  approved_sha256:
    description: SHA-256 of the approved plan.
    type: str
    required: true
"""
EXAMPLES = """
- snaprebuild_plan:
    plan: /var/lib/kafka/staged/plan.jsonl
    approved: /var/lib/snaprebuild/plan-0f343b0931126a20f133d67c2b018a3b.jsonl
    approved_sha256: 0f343b0931126a20f133d67c2b018a3b...
"""
RETURN = """
kept: {description: Approved snapshots that the new plan has with the same bytes., type: int, returned: always}
added: {description: Snapshots that only the new plan has., type: int, returned: always}
dropped: {description: Approved snapshots that the new plan does not have. Retention deleted their segments., type: int, returned: always}
"""


def snapshots_in(plan: str) -> dict[tuple[str, int], str]:
    """The SHA-256 of each snapshot of a plan's text, by partition directory and offset."""
    partitions = [line for line in map(json.loads, plan.splitlines()) if "snapshots" in line]
    return {(each["path"], one["offset"]): one["sha256"] for each in partitions for one in each["snapshots"]}


def compared(approved: dict[tuple[str, int], str], new: dict[tuple[str, int], str]) -> dict[str, Any]:
    """Counts, and the approved snapshots that have other bytes in the new plan."""
    common = approved.keys() & new.keys()
    changed = sorted(f"{path}: {offset}" for path, offset in common if approved[path, offset] != new[path, offset])
    return {
        "kept": len(common) - len(changed),
        "added": len(new.keys() - approved.keys()),
        "dropped": len(approved.keys() - new.keys()),
        "changed_snapshots": changed,
    }


def main() -> None:
    """Runs the module."""
    options = {
        name: {"type": kind, "required": True}
        for name, kind in (("plan", "path"), ("approved", "path"), ("approved_sha256", "str"))
    }
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    try:
        approved, new = (Path(module.params[name]).read_bytes() for name in ("approved", "plan"))
    except OSError as error:
        module.fail_json(msg=f"cannot read a plan: {error}. Run prepare.yml again")
    digest = hashlib.sha256(approved).hexdigest()
    if digest != module.params["approved_sha256"]:
        module.fail_json(
            msg=f"{module.params['approved']} has the SHA-256 {digest}: it is not the approved plan. Run prepare.yml again"
        )
    result = compared(snapshots_in(approved.decode()), snapshots_in(new.decode()))
    if result["changed_snapshots"]:
        module.fail_json(msg="approved snapshots have other bytes now: run prepare.yml, and approve again", **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
