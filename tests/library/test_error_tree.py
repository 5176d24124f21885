"""The error tree: what is drawn is what exists, and every error crosses process boundaries whole."""

import pickle
import re

import pytest

from snaprebuild import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
EXIT_CODES = {
    "SnaprebuildError": 5,
    "UsageError": 2,
    "RefusedError": 3,
    "DeadlinePassedError": 3,
    "HeldError": 3,
    "LimitReachedError": 3,
    "OutOfMemoryError": 5,
    "LockUnknownError": 3,
    "SnapshotRefusedError": 3,
    "UploadRefusedError": 3,
    "StorageError": 5,
    "WriteFailedError": 5,
    "AlreadyExistsError": 5,
    "BusyError": 5,
    "ChangedFileError": 3,
    "DamagedCopyError": 4,
    "GoneFileError": 3,
    "GonePartitionError": 3,
    "OutcomeUnknownError": 5,
    "ReadFailedError": 5,
}


def drawn_tree() -> dict[str, str]:
    """Reads the tree of the docstring: each class and the one that it hangs on."""
    parents, path = {}, []
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│├└─ ]*)(\w+Error)\b", line)
        if match:
            depth = len(match[1]) // 4
            path = [*path[:depth], match[2]]
            parents[match[2]] = path[-2] if depth else "Exception"
    return parents


def test_the_drawing_is_the_tree():
    defined = {name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, Exception)}
    assert drawn_tree() == {name: cls.__bases__[0].__name__ for name, cls in defined.items()}
    assert sorted(defined) == errors.__all__


def test_exit_codes():
    assert {cls.__name__: cls.exit_code for cls in CLASSES} == EXIT_CODES


@pytest.mark.parametrize("cls", CLASSES)
def test_an_error_crosses_process_boundaries(cls):
    error = cls("it happened", path="/logs/topic-0")
    if isinstance(error, errors.StorageError):
        error.errno = 28
        error.leftover = "00000000000000000042.snapshot.tmp"
    if isinstance(error, errors.AlreadyExistsError):
        error.name = "00000000000000000042.snapshot"
    error.add_note("a note")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)
    assert str(copy).startswith("/logs/topic-0: it happened")


def test_without_a_path():
    assert str(errors.UsageError("no such thing")) == "no such thing"
