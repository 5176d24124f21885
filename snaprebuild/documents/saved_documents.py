"""Documents of other commands: which command wrote a file, and its members one after the other. Nothing in them is trusted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, get_args, get_origin, get_type_hints

from formats.errors import BadVersionError, FormatError
from formats.json_document import JsonMembers
from formats.text_lines import shown
from snaprebuild.documents.envelope import FirstMembers, LastMembers
from snaprebuild.errors import ReadFailedError, UsageError
from snaprebuild.published import Document, Part, UnexpectedValueError, part_of
from snaprebuild.storage.local.regular_file import open_named_file

__all__ = [
    "DocumentHead",
    "inconsistent",
    "members_of",
    "read_head",
    "typed_members",
]


_SCHEMA = re.compile(r"snaprebuild\.([a-z-]{1,40})/([0-9]{1,4})")


@dataclass(frozen=True, slots=True)
class DocumentHead:
    """The kind of a document.

    Attributes:
        path: of the file.
        verb: the command that wrote it, words joined by dashes.
        version: of the form.
        snaprebuild: version of the program.
    """

    path: str
    verb: str
    version: int
    snaprebuild: str

    @property
    def schema(self) -> str:
        """The schema id, as in the document."""
        return f"snaprebuild.{self.verb}/{self.version}"


def read_head(path: str, known: Mapping[str, int], *, older: str = "make it again with this program") -> DocumentHead:
    """Reads the first members of a document.

    Args:
        path: of the file.
        known: versions of the documents that can be used, by command.
        older: advice for a document of an older version.

    Raises:
        UsageError: the file does not exist, is no document of this program, cannot be used, or is of another version.
        ReadFailedError: it cannot be read.
    """
    wanted = " or ".join(sorted(known))
    with _opened(path) as file:
        members: dict[str, Any] = {}
        for name, value in JsonMembers(file.read, file=path):  # the first line of a receipt is an object of its own
            members[name] = value
            if len(members) == 2:
                break
        schema = members.get("schema")
        snaprebuild = members.get("snaprebuild")
        match = _SCHEMA.fullmatch(schema) if isinstance(schema, str) else None
        if match is None or not isinstance(snaprebuild, str):
            found = shown(schema) if isinstance(schema, str) else "none"
            raise UsageError(f"is no document of {wanted}: its first member must be its schema; found {found}", path=path)
        verb = match[1]
        version = int(match[2])
        if verb not in known:
            raise UsageError(f"is no document of {wanted}: found {schema}", path=path)
        if version != known[verb]:
            advice = older if version < known[verb] else "it was written by a newer program"
            expected = f"expected snaprebuild.{verb}/{known[verb]}, found {schema} of snaprebuild {shown(snaprebuild)}"
            raise UsageError(f"is of another version: {expected}; {advice}", path=path)
        return DocumentHead(path, verb, version, snaprebuild)


def members_of(path: str, streamed: Collection[str], needed: Collection[str]) -> Iterator[tuple[str, Any]]:
    """The members of a document, lists that are ``streamed`` element by element.

    Raises:
        UsageError: it is no JSON, or a ``needed`` member is missing at its end.
        ReadFailedError: it cannot be read.
    """
    with _opened(path) as file:
        members = JsonMembers(file.read, streamed, file=path)
        yield from members
        missing = [name for name in needed if name not in members.seen]
        if missing:
            raise UsageError(f"is damaged: expected a member {missing[0]}, found none", path=path)


def typed_members(
    path: str, kind: type[Document], names: Collection[str], *, optional: Collection[str] = ()
) -> Iterator[tuple[str, Any]]:
    """Some members of a document, as its struct describes them; lists of objects are yielded element by element.

    Args:
        path: of the file.
        kind: struct of the document; members of ``FirstMembers`` and ``LastMembers`` may be named, too.
        names: of the members.
        optional: more of them, which earlier documents lack.

    Raises:
        UsageError: it is no JSON, one of ``names`` is absent, or a member has another form; the text names the member, what was
            expected and found.
        ReadFailedError: it cannot be read.
    """
    types = {
        name: found
        for each in (FirstMembers, kind, LastMembers)
        for name, found in get_type_hints(each, include_extras=True).items()
    }
    elements = {name: _element_of(types[name]) for name in (*names, *optional)}
    count: Counter[str] = Counter()
    for name, value in members_of(path, {name for name, element in elements.items() if element is not None}, names):
        if name not in elements:
            continue
        element = elements[name]
        what = name if element is None else f"{name}[{count[name]}]"
        count[name] += 1
        yield name, part_of(types[name] if element is None else element, value, path=path, what=what)


def _element_of(kind: Any) -> Any:
    """The struct of the elements of a list; None for other types."""
    element = (*get_args(kind), None)[0] if get_origin(kind) in (list, Sequence) else None
    return element if isinstance(element, type) and issubclass(element, Part) else None


@contextmanager
def inconsistent(path: str, what: str) -> Iterator[None]:
    """Turns an ``UnexpectedValueError`` into an error of the file.

    Raises:
        UsageError: in its place.
    """
    try:
        yield
    except UnexpectedValueError as error:
        raise UsageError(f"is damaged: {what}: {error}", path=path) from error


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO]:
    with open_named_file(path) as file:
        try:
            yield file
        except BadVersionError:
            raise
        except FormatError as error:
            raise UsageError(f"is damaged: {error.message}", path=path) from error
        except OSError as error:
            raise ReadFailedError.from_os_error(error, "cannot be read", path) from error
