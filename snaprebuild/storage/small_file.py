"""Plans and reports: small text files of our own, outside of log directories, replaced whole."""

from __future__ import annotations

import contextlib
import os
import tempfile

from snaprebuild.errors import WriteFailedError

__all__ = ["write_text_file"]


def write_text_file(path: str, text: str) -> None:
    """Writes a file whole, replacing an older one of the same name.

    Raises:
        WriteFailedError: it cannot be written; an older one is as it was.
    """
    directory, name = os.path.split(os.path.abspath(path))
    temporary: str | None = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=directory, prefix=f".{name}-", delete=False) as file:
            temporary = file.name
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise WriteFailedError(f"cannot be written: {error.strerror}", path=path, errno=error.errno) from error
