"""A JSON schema as functions: whether a document follows it, in a small part of the time that jsonschema takes.

jsonschema judges once more what they refuse, and test_compiled_schema.py compares both. A keyword that is not known here is an error.
"""

import re
from collections.abc import Callable
from typing import Any

__all__ = ["compiled"]

Check = Callable[[Any], bool]
ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "contentEncoding"}
DEFINITIONS = "#/$defs/"
NUMBERS = (int, float)
CONTAINERS = (list, dict)
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": NUMBERS,
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
"""Compared with the exact type of a value: True is no integer."""


def compiled(schema: dict[str, Any]) -> Check:
    """Whether a document follows a schema.

    Raises:
        NotImplementedError: it has a keyword that is not known here.
    """
    return _Definitions(schema.get("$defs", {})).check_of(schema)


class _Definitions:
    """The schemas that ``$ref`` names, compiled when they are first needed: a definition may refer to itself."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._checks: dict[str, Check] = {}

    def check_of(self, schema: dict[str, Any]) -> Check:
        unknown = schema.keys() - KEYWORDS.keys() - ANNOTATIONS - {"properties", "additionalProperties", "$ref"}
        if unknown:
            raise NotImplementedError(f"not compiled: {sorted(unknown)}")
        checks = [KEYWORDS[keyword](self, value) for keyword, value in schema.items() if keyword in KEYWORDS]
        if "$ref" in schema:
            checks.append(self._referred(schema["$ref"]))
        if "properties" in schema or "additionalProperties" in schema:
            checks.append(self._members(schema.get("properties", {}), schema.get("additionalProperties", True)))
        if len(checks) == 1:
            return checks[0]
        return lambda value: all(check(value) for check in checks)

    def _referred(self, reference: str) -> Check:
        if not reference.startswith(DEFINITIONS):
            raise NotImplementedError(f"not compiled: {reference}")
        name = reference.removeprefix(DEFINITIONS)

        def check(value: Any) -> bool:
            if name not in self._checks:
                self._checks[name] = self.check_of(self._schemas[name])
            return self._checks[name](value)

        return check

    def _members(self, properties: dict[str, Any], others: bool | dict[str, Any]) -> Check:
        checks = {name: self.check_of(schema) for name, schema in properties.items()}
        other = (lambda _: others) if isinstance(others, bool) else self.check_of(others)
        return lambda value: type(value) is not dict or all(checks.get(name, other)(member) for name, member in value.items())

    def type(self, names: str | list[str]) -> Check:
        listed = [names] if isinstance(names, str) else names
        types = {each for name in listed for each in TYPES[name]}
        if "integer" not in listed:
            return lambda value: type(value) in types
        return lambda value: type(value) in types or (type(value) is float and value.is_integer())

    def enum(self, values: list[Any]) -> Check:
        exact = {(type(value) is bool, value) for value in values}
        return lambda value: type(value) not in CONTAINERS and (type(value) is bool, value) in exact

    def const(self, value: Any) -> Check:
        return self.enum([value])

    def minimum(self, least: float) -> Check:
        return lambda value: type(value) not in NUMBERS or not value < least

    def maximum(self, most: float) -> Check:
        return lambda value: type(value) not in NUMBERS or not value > most

    def pattern(self, text: str) -> Check:
        found = re.compile(text).search
        return lambda value: type(value) is not str or found(value) is not None

    def required(self, names: list[str]) -> Check:
        wanted = frozenset(names)
        return lambda value: type(value) is not dict or wanted <= value.keys()

    def items(self, schema: dict[str, Any]) -> Check:
        check = self.check_of(schema)
        return lambda value: type(value) is not list or all(map(check, value))

    def property_names(self, schema: dict[str, Any]) -> Check:
        check = self.check_of(schema)
        return lambda value: type(value) is not dict or all(map(check, value))

    def min_items(self, least: int) -> Check:
        return lambda value: type(value) is not list or len(value) >= least

    def max_items(self, most: int) -> Check:
        return lambda value: type(value) is not list or len(value) <= most

    def any_of(self, schemas: list[dict[str, Any]]) -> Check:
        checks = [self.check_of(schema) for schema in schemas]
        return lambda value: any(check(value) for check in checks)

    def one_of(self, schemas: list[dict[str, Any]]) -> Check:
        checks = [self.check_of(schema) for schema in schemas]
        return lambda value: sum(check(value) for check in checks) == 1


KEYWORDS: dict[str, Callable[[_Definitions, Any], Check]] = {
    "type": _Definitions.type,
    "enum": _Definitions.enum,
    "const": _Definitions.const,
    "minimum": _Definitions.minimum,
    "maximum": _Definitions.maximum,
    "pattern": _Definitions.pattern,
    "required": _Definitions.required,
    "items": _Definitions.items,
    "propertyNames": _Definitions.property_names,
    "minItems": _Definitions.min_items,
    "maxItems": _Definitions.max_items,
    "anyOf": _Definitions.any_of,
    "oneOf": _Definitions.one_of,
}
