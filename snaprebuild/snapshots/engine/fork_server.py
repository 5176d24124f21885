"""The first module that the fork server imports: from then on the kernel kills the server when the process that started it ends.

Without it the server notices the end, too, but only after it has loaded all that workers need. Any other process imports it to no effect.
"""

from __future__ import annotations

import os
import sys
from multiprocessing import forkserver

from snaprebuild.storage.local.process_settings import end_with_parent

__all__: list[str] = []

if getattr(sys.modules["__main__"], "main", None) is forkserver.main:
    end_with_parent(os.getppid())
