"""What the metadata log says of who may do what: ACLs, SCRAM credentials, delegation tokens; numbers and their names.

Source: ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType``, ``ScramMechanism`` of Kafka 4.3.1.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AccessControlEntry", "DelegationToken", "mechanism_name"]

_RESOURCE_TYPES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
_PATTERN_TYPES = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
_OPERATIONS = (
    *("UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION"),
    *("DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT"),
)
_PERMISSION_TYPES = ("UNKNOWN", "ANY", "DENY", "ALLOW")
_MECHANISMS = ("UNKNOWN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _name(names: tuple[str, ...], number: int) -> str:
    """Of a number; one that a later release gave has none, and is shown as it is."""
    return names[number] if 0 <= number < len(names) else str(number)


def mechanism_name(number: int) -> str:
    """Of a SCRAM mechanism."""
    return _name(_MECHANISMS, number)


@dataclass(frozen=True, slots=True)
class AccessControlEntry:
    """An ACL; numbers as in ``ResourceType``, ``PatternType``, ``AclOperation`` and ``AclPermissionType`` of Kafka."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int

    @property
    def resource_type_name(self) -> str:
        """``TOPIC``, ``GROUP``, and so on."""
        return _name(_RESOURCE_TYPES, self.resource_type)

    @property
    def pattern_type_name(self) -> str:
        """``LITERAL`` or ``PREFIXED``."""
        return _name(_PATTERN_TYPES, self.pattern_type)

    @property
    def operation_name(self) -> str:
        """``READ``, ``WRITE``, and so on."""
        return _name(_OPERATIONS, self.operation)

    @property
    def permission_name(self) -> str:
        """``ALLOW`` or ``DENY``."""
        return _name(_PERMISSION_TYPES, self.permission_type)


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token, without its secret, which the log does not hold. Times are ms since 1970."""

    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp_ms: int
    max_timestamp_ms: int
    expiration_timestamp_ms: int
