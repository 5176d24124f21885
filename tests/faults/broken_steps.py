"""Every step that publishes a file or an object safely, left out or done wrong.

Each entry breaks one guarantee: what is published is whole, durable, our own bytes, with the right owner, announced before it appears, and
never in the place of something else.
"""

from __future__ import annotations

from broken_code import BrokenCode

(
    PUBLISH,
    DIRECTORIES,
    CALLS,
    WHOLE,
    REGULAR,
    DIRECTORY,
    DOCUMENT,
    JOURNAL,
    LINKED,
    LOCK,
    LOCAL,
    PORTS,
    S3,
    REQUESTS,
    MULTIPART,
    S3_REPLACE,
) = (
    "snaprebuild.storage.local.publish",
    "snaprebuild.storage.local.directories",
    "snaprebuild.storage.local.file_calls",
    "snaprebuild.storage.local.whole_file",
    "snaprebuild.storage.local.regular_file",
    "snaprebuild.storage.local.new_directory",
    "snaprebuild.storage.local.document_file",
    "snaprebuild.storage.local.journal_file",
    "snaprebuild.storage.local.hard_links",
    "snaprebuild.storage.local.record_lock",
    "snaprebuild.storage.local.store",
    "snaprebuild.storage.store",
    "snaprebuild.storage.s3.store",
    "snaprebuild.storage.s3.requests",
    "snaprebuild.storage.s3.multipart",
    "snaprebuild.storage.s3.replace",
)
WRITER, IN_PLACE, RECEIPT, STAGED, STAGED_CHECK, INSTALL, REPAIR, UNDO_FILE, UPLOAD = (
    "snaprebuild.snapshots.rebuild.writer",
    "snaprebuild.snapshots.rebuild.in_place_writer",
    "snaprebuild.snapshots.receipts.receipt",
    "snaprebuild.snapshots.rebuild.staged_writer",
    "snaprebuild.snapshots.staging.staged_check",
    "snaprebuild.snapshots.staging.install",
    "snaprebuild.tier.repair.copy_repair",
    "snaprebuild.tier.repair.undo",
    "snaprebuild.tier.upload.copy",
)

BROKEN_STEPS = (
    # ------------------------------------------------------------------------------------------------ a new file (publish)
    BrokenCode(
        "create: a left-over temporary file is not removed",
        PUBLISH,
        "        _remove_leftover(place, temporary_name)\n        _refuse_existing",
        "        _refuse_existing",
    ),
    BrokenCode(
        "create: a left-over temporary file is written over",
        PUBLISH,
        "        _remove_leftover(place, temporary_name)\n        _refuse_existing(place, name)\n",
        "        _refuse_existing(place, name)\n"
        "        place = OpenDirectory(place.fd, place.shown, type('Calls', (), {'__getattr__': lambda _, n: getattr(calls, n), 'open':\n"
        "            lambda _, n, flags, *more, **rest: calls.open(n, flags & ~os.O_EXCL, *more, **rest)})())\n",
    ),
    BrokenCode(
        "create: a left-over temporary file is trusted and gets the name",
        PUBLISH,
        "    with opened(directory, calls) as place:\n        _remove_leftover(place, temporary_name)\n",
        "    with opened(directory, calls) as place:\n        if place.is_taken(temporary_name):\n"
        "            return calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "create: a left-over that is no regular file is removed",
        PUBLISH,
        "if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):",
        "if False:",
    ),
    BrokenCode(
        "create: the temporary file may be that of another run",
        PUBLISH,
        "flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        "flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW",
    ),
    BrokenCode(
        "create: the temporary file is not locked",
        PUBLISH,
        "            temporary.lock()\n",
        "            pass\n",
    ),
    BrokenCode("create: without locks it is written all the same", PUBLISH, "raise failure from error", "return"),
    BrokenCode(
        "create: the lock may be on a file that lost its name",
        PUBLISH,
        "is_ours = self.place.leads_to(self.name, self.fd)",
        "is_ours = True",
    ),
    BrokenCode(
        "create: the lock ends before the temporary name is removed",
        PUBLISH,
        "        _finish(self.place, self.name if is_linked",
        "        self.place.close(self.fd)\n        _finish(self.place, self.name if is_linked",
    ),
    BrokenCode("create: owner and mode are not set", PUBLISH, "        if owner is not None:\n", "        if False:\n"),
    BrokenCode("create: the owner is not set", PUBLISH, "if (found.uid, found.gid) != (owner.uid, owner.gid):", "if False:"),
    BrokenCode("create: the mode is not set", PUBLISH, "if found.mode != owner.mode:", "if False:"),
    BrokenCode(
        "create: the mode is set before the owner",
        PUBLISH,
        "            if (found.uid, found.gid) != (owner.uid, owner.gid):\n"
        "                self.place.calls.fchown(self.fd, owner.uid, owner.gid)\n"
        "            if found.mode != owner.mode:\n                self.place.calls.fchmod(self.fd, owner.mode)\n",
        "            if found.mode != owner.mode:\n                self.place.calls.fchmod(self.fd, owner.mode)\n"
        "            if (found.uid, found.gid) != (owner.uid, owner.gid):\n"
        "                self.place.calls.fchown(self.fd, owner.uid, owner.gid)\n",
    ),
    BrokenCode(
        "create: an owner that the file system does not keep is accepted",
        PUBLISH,
        "keep their own.\n                found = Ownership.of(calls.fstat(self.fd))",
        "keep their own.\n                found = owner",
    ),
    BrokenCode(
        "create: owner and mode are set after the bytes are written",
        PUBLISH,
        "        if owner is not None:\n            self._take_ownership(owner)\n        self._write(blocks)\n",
        "        self._write(blocks)\n        if owner is not None:\n            self._take_ownership(owner)\n",
    ),
    BrokenCode(
        "create: a short write is accepted",
        PUBLISH,
        "                while rest:\n                    taken = ",
        "                if rest:\n                    taken = ",
    ),
    BrokenCode(
        "create: a write that takes no bytes is accepted",
        PUBLISH,
        'raise OSError(errno.EIO, "the file system takes no bytes")',
        "break",
    ),
    BrokenCode("create: the file is not synced", PUBLISH, "            self.sync()\n", ""),
    BrokenCode(
        "create: an error of the sync is ignored",
        PUBLISH,
        "            self.sync()\n",
        "            with contextlib.suppress(OSError):\n                self.sync()\n",
    ),
    BrokenCode("create: it is not read back", PUBLISH, "        self._read_back(blocks)\n", ""),
    BrokenCode("create: what is read back is not compared", PUBLISH, "if difference is not None:", "if False:"),
    BrokenCode(
        "create: what is read back may be too short",
        PUBLISH,
        "            if not found or found != wanted:\n",
        "            if not found:\n                return None\n            if found != wanted:\n",
    ),
    BrokenCode(
        "create: what is read back may be too long",
        PUBLISH,
        "return position if calls.read(fd, 1) else None",
        "return None",
    ),
    BrokenCode(
        "create: an error of reading back is ignored",
        PUBLISH,
        "            difference = _first_difference(calls, again, blocks)\n        except OSError as error:\n            raise",
        "            difference = _first_difference(calls, again, blocks)\n        except OSError as error:\n            return\n"
        "            raise",
    ),
    BrokenCode(
        "create: it is read back from memory",
        PUBLISH,
        "with those in the page cache\n            calls.forget_cached(self.fd)",
        "with those in the page cache\n            pass",
    ),
    BrokenCode(
        "create: another file is read back",
        PUBLISH,
        "if not os.path.samestat(calls.fstat(again), calls.fstat(self.fd)):",
        "if False:",
    ),
    BrokenCode(
        "create: the caller is not asked before the name",
        PUBLISH,
        "            if before_name is not None:\n                before_name(temporary.status())\n",
        "",
    ),
    BrokenCode(
        "create: the caller is asked after the name",
        PUBLISH,
        "            if before_name is not None:\n                before_name(temporary.status())\n            temporary.link_as(name)\n",
        "            temporary.link_as(name)\n            if before_name is not None:\n                before_name(temporary.status())\n",
    ),
    BrokenCode(
        "create: the name comes before the bytes and the sync",
        PUBLISH,
        "        self._write(blocks)\n        self._read_back(blocks)\n",
        "        self.place.calls.link(self.name, self.name.removesuffix('.tmp'), dir_fd=self.place.fd)\n"
        "        self._write(blocks)\n        self._read_back(blocks)\n",
    ),
    BrokenCode(
        "create: the name comes before reading back",
        PUBLISH,
        "        self._read_back(blocks)\n\n    def",
        "        self.place.calls.link(self.name, self.name.removesuffix('.tmp'), dir_fd=self.place.fd)\n"
        "        self._read_back(blocks)\n\n    def",
    ),
    BrokenCode(
        "create: an existing file is replaced",
        PUBLISH,
        "place.calls.link(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "create: without hard links an existing file is replaced",
        PUBLISH,
        "place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "create: after an error the name is not looked at",
        PUBLISH,
        'if _has_name(place, name, fd, error, "may exist (giving the name"):',
        "if False:",
    ),
    BrokenCode(
        "create: another file under the name is taken for ours",
        PUBLISH,
        'if _has_name(place, name, fd, error, "may exist (giving the name"):',
        "if error.errno == errno.EEXIST:",
    ),
    BrokenCode(
        "create: an unknown outcome is reported as a failure",
        PUBLISH,
        'raise place.unknown(name, f"{risk} failed with: {reason_of(cause)})", error) from cause',
        "return False",
    ),
    BrokenCode(
        "create: the entry of an existing file is not synced",
        PUBLISH,
        'failure = place.sync_failure(name, "exists and may not survive a power failure")\n    return failure or',
        "failure = None\n    return failure or",
    ),
    BrokenCode(
        "create: after a failure the temporary file stays",
        PUBLISH,
        "is_removed = temporary.is_named or temporary.remove()",
        "is_removed = True",
    ),
    BrokenCode(
        "create: after a failure the temporary file of another run is removed",
        PUBLISH,
        "            if self.place.leads_to(self.name, self.fd):\n",
        "            if True:\n",
    ),
    BrokenCode(
        "create: the temporary name is not removed",
        PUBLISH,
        "            place.calls.unlink(temporary_name, dir_fd=place.fd)\n        except FileNotFoundError",
        "            pass\n        except FileNotFoundError",
    ),
    BrokenCode(
        "create: that the temporary name stays is not reported",
        PUBLISH,
        '            failure = place.unknown(name, "exists, whole, but has its temporary name too", error)\n',
        "",
    ),
    BrokenCode(
        "create: the directory is not synced",
        PUBLISH,
        'failure = place.sync_failure(name, "exists and may not survive a power failure") or failure',
        "pass",
    ),
    BrokenCode(
        "create: the directory is synced before the temporary name is removed",
        PUBLISH,
        "        _finish(self.place, self.name if is_linked else None, name)\n",
        "        _finish(self.place, None, name)\n        if is_linked:\n"
        "            self.place.calls.unlink(self.name, dir_fd=self.place.fd)\n",
    ),
    BrokenCode(
        "create: an error of the directory's sync is not reported",
        PUBLISH,
        "    if failure is not None:\n        failure.leftover",
        "    if False:\n        failure.leftover",
    ),
    # ------------------------------------------------------------------------------------------------ directories
    BrokenCode("directory: it is not synced", DIRECTORIES, "            self.calls.fsync(self.fd)\n", "            pass\n"),
    BrokenCode(
        "directory: an error of the sync is ignored", DIRECTORIES, "            return failure\n", "            return None\n"
    ),
    BrokenCode(
        "directory: after any error of the sync a look at the name is enough",
        DIRECTORIES,
        "if error.errno in _NO_DIRECTORY_SYNC and self._exists(name):",
        "if self._exists(name):",
    ),
    BrokenCode(
        "directory: a name is removed that a live run holds",
        DIRECTORIES,
        "            self.calls.lock(fd)\n            # The run",
        "            # The run",
    ),
    BrokenCode(
        "directory: a name is removed that leads to another file by now",
        DIRECTORIES,
        "if not is_meant(fd) or not self.leads_to(name, fd):",
        "if not is_meant(fd):",
    ),
    BrokenCode(
        "directory: a file is removed that is not meant",
        DIRECTORIES,
        "if not is_meant(fd) or not self.leads_to(name, fd):",
        "if not self.leads_to(name, fd):",
    ),
    BrokenCode(
        "directory: two files with one name are taken for one file",
        DIRECTORIES,
        "return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)",
        "return self._exists(name)",
    ),
    BrokenCode(
        "directory: a name may lead out of it",
        DIRECTORIES,
        'if name in ("", ".", "..") or "/" in name or "\\0" in name:',
        "if False:",
    ),
    # ------------------------------------------------------------------------------------------------ system calls (file_calls)
    BrokenCode("calls: fsync is not called", CALLS, "os.fsync(fd)", "pass"),
    BrokenCode("calls: the lock is not taken", CALLS, "record_lock.take(fd)", "pass"),
    BrokenCode("calls: the owner is not set", CALLS, "os.fchown(fd, uid, gid)", "pass"),
    BrokenCode("calls: the mode is not set", CALLS, "os.fchmod(fd, mode)", "pass"),
    BrokenCode("calls: the cache is not dropped", CALLS, "os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)", "pass"),
    BrokenCode("calls: a name is not removed", CALLS, "os.unlink(name, dir_fd=dir_fd)", "pass"),
    BrokenCode("calls: the umask of the process counts", CALLS, "umask = os.umask(0o022)", "umask = os.umask(os.umask(0o077))"),
    BrokenCode(
        "calls: looking at a name follows links",
        CALLS,
        "os.stat(name, dir_fd=dir_fd, follow_symlinks=False)",
        "os.stat(name, dir_fd=dir_fd, follow_symlinks=True)",
    ),
    BrokenCode(
        "calls: a hard link is made to what a symbolic link leads to",
        CALLS,
        "dst_dir_fd=dir_fd, follow_symlinks=False)",
        "dst_dir_fd=dir_fd, follow_symlinks=True)",
    ),
    BrokenCode(
        "calls: a hard link replaces",
        CALLS,
        "os.link(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)",
        "os.replace(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)",
    ),
    BrokenCode("calls: the rename that does not replace replaces", CALLS, "_RENAME_NOREPLACE) != 0", "0) != 0"),
    BrokenCode(
        "lock: reading the file drops it",
        LOCK,
        "fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK)",
        "fcntl.F_SETLK, _whole_file(fcntl.F_WRLCK)",
    ),
    # ------------------------------------------------------------------------------------------------ names of whole files
    BrokenCode("second name: the file may have a third one", WHOLE, "and status.st_nlink == 2 and", "and"),
    BrokenCode(
        "second name: it may be that of another file",
        WHOLE,
        "status.st_nlink == 2 and place.leads_to_file(name, status)",
        "status.st_nlink == 2",
    ),
    BrokenCode(
        "second name: it is not looked at again under the lock",
        WHOLE,
        "place.is_unlinked(temporary_name, lambda fd: is_second_name(calls.fstat(fd)))",
        "place.is_unlinked(temporary_name, lambda fd: True)",
    ),
    BrokenCode(
        "second name: the directory is not synced",
        WHOLE,
        'if failure := place.sync_failure(name, "exists, and a power failure may bring its temporary name back"):',
        "if failure := None:",
    ),
    BrokenCode(
        "remove: what is no regular file is removed",
        WHOLE,
        "if not stat.S_ISREG(calls.stat(name, dir_fd=place.fd).st_mode):",
        "if False:",
    ),
    BrokenCode(
        "remove: any file is removed", WHOLE, "place.is_unlinked(name, is_meant)", "place.is_unlinked(name, lambda fd: True)"
    ),
    BrokenCode(
        "remove: the directory is not synced",
        WHOLE,
        'if failure := place.sync_failure(".", "a power failure may bring back what was removed"):',
        "if failure := None:",
    ),
    BrokenCode("set aside: what is no regular file is moved", WHOLE, "if not stat.S_ISREG(status.st_mode):", "if False:"),
    BrokenCode(
        "set aside: a file under the new name is replaced",
        WHOLE,
        "calls.rename_noreplace(name, aside, dir_fd=place.fd)",
        "calls.rename(name, aside, dir_fd=place.fd)",
    ),
    BrokenCode(
        "set aside: by link, the old name is removed before the new one is synced",
        WHOLE,
        "            calls.fsync(place.fd)\n            calls.unlink(name, dir_fd=place.fd)\n    except",
        "            calls.unlink(name, dir_fd=place.fd)\n    except",
    ),
    BrokenCode(
        "set aside: by link, the old name stays",
        WHOLE,
        "            calls.fsync(place.fd)\n            calls.unlink(name, dir_fd=place.fd)\n    except",
        "            calls.fsync(place.fd)\n    except",
    ),
    BrokenCode(
        "set aside: the directory is not synced",
        WHOLE,
        'if failure := place.sync_failure(aside, "was set aside and may have its old name after a power failure"):',
        "if failure := None:",
    ),
    BrokenCode(
        "set aside: the old name that a killed run left stays",
        WHOLE,
        "if is_aside and place.leads_to_file(name, status):",
        "if False:",
    ),
    BrokenCode(
        "set aside: the old name that a killed run left is removed before the new one is synced",
        WHOLE,
        "                calls.fsync(place.fd)  # a run that was stopped between link and unlink left both names\n",
        "",
    ),
    BrokenCode(
        "set aside: after an error the names are not looked at",
        WHOLE,
        "is_aside = place.leads_to_file(aside, status)",
        "is_aside = False",
    ),
    # ------------------------------------------------------------------------------------------------ a file is replaced
    BrokenCode(
        "replace: a left-over temporary file is not removed",
        PUBLISH,
        "        _remove_leftover(place, temporary_name)\n        with temporary_file",
        "        with temporary_file",
    ),
    BrokenCode(
        "replace: the temporary file is not locked",
        PUBLISH,
        "            temporary.lock()\n",
        "            pass\n",
    ),
    BrokenCode(
        "replace: owner and mode are not set",
        PUBLISH,
        "temporary.fill(lambda: (data,), owner)",
        "temporary.fill(lambda: (data,), None)",
    ),
    BrokenCode("replace: it is not read back", PUBLISH, "        self._read_back(blocks)\n", ""),
    BrokenCode(
        "replace: after a failure the temporary file stays",
        PUBLISH,
        "is_removed = temporary.is_named or temporary.remove()",
        "is_removed = True",
    ),
    BrokenCode(
        "replace: it may have changed before", PUBLISH, "Ownership.of(_unchanged(place, name, was))", "Ownership.of(os.stat(path))"
    ),
    BrokenCode("replace: it may have changed meanwhile", PUBLISH, "            _unchanged(place, name, was)\n", ""),
    BrokenCode("replace: another file may have the name", PUBLISH, "or FileIdentity.of(status) != was:", "or False:"),
    BrokenCode(
        "replace: it is written in place",
        PUBLISH,
        "            temporary.rename_over(name)\n",
        '            with open(path, "wb") as file:\n                file.write(data)\n'
        "            calls.unlink(temporary_name, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "replace: the directory is not synced",
        PUBLISH,
        'if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):',
        "if failure := None:",
    ),
    BrokenCode(
        "replace: after an error the name is not looked at",
        PUBLISH,
        'if not _has_name(place, name, self.fd, error, "may have been replaced (renaming"):',
        "if True:",
    ),
    BrokenCode(
        "replace: an unknown outcome is reported as a failure",
        PUBLISH,
        'raise place.unknown(name, f"{risk} failed with: {reason_of(cause)})", error) from cause',
        "return False",
    ),
    BrokenCode(
        "replace: a file that changes while it is read is taken",
        REGULAR,
        "    if has_changed(status, now):\n        raise",
        "    if False:\n        raise",
    ),
    # ------------------------------------------------------------------------------------------------ a directory of a partition
    BrokenCode(
        "partition: it has its name from the start",
        DIRECTORY,
        "temporary = name[: NAME_LENGTH_MAX - len(mark)] + mark",
        'temporary = name + "-"',
    ),
    BrokenCode(
        "partition: owner and mode are not set",
        DIRECTORY,
        "            if owner is not None:\n                _take_directory(path, owner)\n",
        "",
    ),
    BrokenCode(
        "partition: its files get no owner",
        DIRECTORY,
        "create_file(path, each, data, owner=owner,",
        "create_file(path, each, data, owner=None,",
    ),
    BrokenCode(
        "partition: the name comes before the files",
        DIRECTORY,
        "            for each, data in files.items():\n"
        '                create_file(path, each, data, owner=owner, temporary_name=f"{each}.tmp", calls=calls)\n'
        "            _give_name(place, temporary, name)\n",
        "            _give_name(place, temporary, name)\n            for each, data in files.items():\n"
        '                create_file(os.path.join(log_dir, name), each, data, owner=owner, temporary_name=f"{each}.tmp", calls=calls)\n',
    ),
    BrokenCode(
        "partition: an empty directory is replaced",
        DIRECTORY,
        "place.calls.rename_noreplace(temporary, name, dir_fd=place.fd)",
        "place.calls.rename(temporary, name, dir_fd=place.fd)",
    ),
    BrokenCode("partition: after a failure it stays", DIRECTORY, "shutil.rmtree(path, ignore_errors=True)", "pass"),
    BrokenCode(
        "partition: the log directory is not synced",
        DIRECTORY,
        'if failure := place.sync_failure(name, "exists and may not survive a power failure"):',
        "if failure := None:",
    ),
    BrokenCode(
        "partition: after an error the name is not looked at",
        DIRECTORY,
        "if status is not None and place.leads_to_file(name, status):",
        "if False:",
    ),
    # ------------------------------------------------------------------------------------------------ files of our own
    BrokenCode(
        "plan: it may be written among the files of a broker",
        DOCUMENT,
        "    check_place(path)\n    with _published",
        "    with _published",
    ),
    BrokenCode(
        "plan: any file is replaced", DOCUMENT, "if name in names and not _is_own(os.path.join(directory, name)):", "if False:"
    ),
    BrokenCode("plan: it is not synced", DOCUMENT, "            temporary.sync()\n", ""),
    BrokenCode(
        "plan: it is synced before all bytes are written",
        DOCUMENT,
        '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n            temporary.sync()\n',
        '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n                temporary.sync()\n',
    ),
    BrokenCode("plan: only its writer may read it", DOCUMENT, "document_mode(), is_locked", "0o600, is_locked"),
    BrokenCode(
        "plan: it is written in place",
        DOCUMENT,
        "                temporary.rename_over(name)\n",
        '                with open(path, "wb") as old, open(os.path.join(directory, temporary_name), "rb") as new:\n'
        "                    old.write(new.read())\n                os.unlink(os.path.join(directory, temporary_name))\n",
    ),
    BrokenCode(
        "plan: the directory is not synced",
        PUBLISH,
        'if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):',
        "if failure := None:",
    ),
    BrokenCode(
        "plan: after a failure the temporary file stays",
        PUBLISH,
        "is_removed = temporary.is_named or temporary.remove()",
        "is_removed = True",
    ),
    BrokenCode(
        "table: it may be written among the files of a broker",
        DOCUMENT,
        "    check_new_place(path)\n    with _published",
        "    with _published",
    ),
    BrokenCode("table: it is not synced", DOCUMENT, "            temporary.sync()\n", ""),
    BrokenCode(
        "table: it is synced before all bytes are written",
        DOCUMENT,
        '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n            temporary.sync()\n',
        '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n                temporary.sync()\n',
    ),
    BrokenCode("table: only its writer may read it", DOCUMENT, "document_mode(), is_locked", "0o600, is_locked"),
    BrokenCode(
        "table: an existing file is replaced",
        PUBLISH,
        "place.calls.link(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "table: without hard links an existing file is replaced",
        PUBLISH,
        "place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "table: the directory is not synced",
        PUBLISH,
        'failure = place.sync_failure(name, "exists and may not survive a power failure") or failure',
        "pass",
    ),
    BrokenCode(
        "table: after a failure the temporary file stays",
        PUBLISH,
        "is_removed = temporary.is_named or temporary.remove()",
        "is_removed = True",
    ),
    BrokenCode("directories: a new one is not synced", DIRECTORIES, "    sync_entries(parent)\n", ""),
    BrokenCode(
        "directories: only the last new one is synced",
        DIRECTORIES,
        "    make_directories(parent)\n",
        "    os.makedirs(parent, exist_ok=True)\n",
    ),
    BrokenCode("directories: no names are synced", DIRECTORIES, "        os.fsync(fd)\n", "        pass\n"),
    BrokenCode(
        "directories: an error of the sync is ignored",
        DIRECTORIES,
        "            raise\n    finally",
        "            pass\n    finally",
    ),
    BrokenCode(
        "local: the directory may not survive",
        LOCAL,
        "        make_directories(directory)\n    except",
        "        os.makedirs(directory, exist_ok=True)\n    except",
    ),
    BrokenCode("local: the owner is not passed on", LOCAL, "            owner=owner,\n", "            owner=None,\n"),
    BrokenCode(
        "local: the caller is not asked before the name",
        LOCAL,
        "before_name=None if before_name is None else lambda status: before_name(status.st_mtime_ns),",
        "before_name=None,",
    ),
    BrokenCode(
        "large file: the directory may not survive",
        LOCAL,
        "        make_directories(directory)\n    except",
        "        os.makedirs(directory, exist_ok=True)\n    except",
    ),
    BrokenCode(
        "large file: a source that became shorter is accepted",
        PORTS,
        "if source.read_into(start, part) != len(part):",
        "if source.read_into(start, part) < 0:",
    ),
    BrokenCode(
        "large file: one with other bytes is taken for ours",
        PORTS,
        "return all(one == other for one, other in pairs)",
        "return True",
    ),
    BrokenCode(
        "large file: the size is not compared",
        PORTS,
        "        if found.size_bytes != source.size_bytes:\n            return False\n",
        "",
    ),
    # ------------------------------------------------------------------------------------------------ journals and receipts
    BrokenCode("journal: a line is not synced", JOURNAL, "            os.fsync(self._fd)\n", ""),
    BrokenCode(
        "journal: a line that is written during a sync counts as synced",
        JOURNAL,
        "self._synced = covered",
        "self._synced = self._written",
    ),
    BrokenCode("journal: a short write is accepted", JOURNAL, "                while data:\n", "                if data:\n"),
    BrokenCode(
        "journal: lines follow one that was not written",
        JOURNAL,
        "                if self._failure is not None:\n",
        "                if False:\n",
    ),
    BrokenCode(
        "journal: an error of the sync is ignored",
        JOURNAL,
        "            self._failure = self._failed(error)\n            raise self._failure from error\n\n    def sync",
        "            pass\n\n    def sync",
    ),
    BrokenCode("journal: an existing file is appended to", JOURNAL, "| os.O_CREAT | os.O_EXCL |", "| os.O_CREAT |"),
    BrokenCode(
        "journal: an existing name is not looked at",
        DOCUMENT,
        "    if os.path.lexists(path):\n        raise",
        "    if False:\n        raise",
    ),
    BrokenCode(
        "journal: it may be written among the files of a broker", DOCUMENT, "    check_place(path)\n    if not", "    if not"
    ),
    BrokenCode("journal: its name is not synced", JOURNAL, "            sync_entries(directory)\n", ""),
    BrokenCode(
        "journal: the directories above it may not survive",
        JOURNAL,
        "            make_directories(directory)\n",
        "            os.makedirs(directory, exist_ok=True)\n",
    ),
    BrokenCode("journal: one that cannot begin stays", JOURNAL, "os.unlink(path)  # nothing", "pass  # nothing"),
    BrokenCode(
        "receipt: a line is not on the device before what it announces",
        RECEIPT,
        "self.announce_all(partition, [event], sync=True)",
        "self.announce_all(partition, [event], sync=False)",
    ),
    BrokenCode(
        "receipt: a file is not announced",
        WRITER,
        "            report(rebuilt.announcement(Fingerprint.of(data, mtime_ns)))\n",
        "",
    ),
    BrokenCode(
        "receipt: a file is announced after it has its name",
        WRITER,
        "            before_name=announce,\n        )\n",
        "        )\n        announce(os.stat(rebuilt.path).st_mtime_ns)\n",
    ),
    BrokenCode(
        "receipt: what is set aside is not announced",
        IN_PLACE,
        "                self._report(SetAsideAnnounced(offset, name, found))\n",
        "",
    ),
    BrokenCode(
        "receipt: what is set aside is announced after it was moved",
        IN_PLACE,
        "                self._report(SetAsideAnnounced(offset, name, found))\n"
        "            with contextlib.suppress(AlreadyExistsError):\n"
        "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n",
        "                pass\n            with contextlib.suppress(AlreadyExistsError):\n"
        "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n"
        "                self._report and self._report(SetAsideAnnounced(offset, name, found))\n",
    ),
    BrokenCode("in place: the lock is not looked at before the name", WRITER, "        check()\n", ""),
    BrokenCode(
        "in place: the lock is not looked at before a file is set aside",
        IN_PLACE,
        "        self._check_lock()\n        aside",
        "        aside",
    ),
    BrokenCode(
        "in place: the segments may have changed beside a broker",
        IN_PLACE,
        "            if not is_same:\n",
        "            if False:\n",
    ),
    BrokenCode(
        "in place: what was set aside is not put back after a failure",
        IN_PLACE,
        "                self._put_back(wanted.offset, aside)\n",
        "                pass\n",
    ),
    # ------------------------------------------------------------------------------------------------ staged files
    BrokenCode(
        "staged: a file that is there is not compared",
        STAGED,
        "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:",
        "if False:",
    ),
    BrokenCode(
        "staged: a file with another owner is taken",
        STAGED,
        "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:",
        "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns):",
    ),
    BrokenCode(
        "staged: the directory may not survive",
        STAGED,
        "            make_directories(rebuilt.target)\n",
        "            os.makedirs(rebuilt.target, exist_ok=True)\n",
    ),
    BrokenCode(
        "install: a file that changed since it was staged is linked",
        STAGED_CHECK,
        '        return "is not the one that was staged"\n',
        "        pass\n",
    ),
    BrokenCode("install: a file with another owner is linked", STAGED_CHECK, "    if owner != wanted:\n", "    if False:\n"),
    BrokenCode(
        "install: an existing file is replaced",
        LINKED,
        "os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)",
        "os.replace(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd)",
    ),
    BrokenCode(
        "install: an existing file is taken for the staged one",
        LINKED,
        "        if _is_same(source_fd, target_fd, name):\n",
        "        if True:\n",
    ),
    BrokenCode(
        "install: a link to the directory is followed",
        LINKED,
        "flags = os.O_NOFOLLOW",
        "flags = 0",
    ),
    BrokenCode("install: the receipt is not synced before the links", INSTALL, "                self._receipt.sync()\n", ""),
    BrokenCode(
        "install: files are linked before they are announced",
        INSTALL,
        '            with self._timed("announce"):\n',
        '            for each in linking:\n                self._link(each)\n            with self._timed("announce"):\n',
    ),
    BrokenCode("install: the lock is not looked at before the links", INSTALL, "            self._verify_lock(checked)\n", ""),
    BrokenCode("install: the directories are not synced", INSTALL, "        sync_directory(path)\n", "        pass\n"),
    BrokenCode(
        "install: an error of the sync is not reported",
        INSTALL,
        "        return error\n    return None",
        "        return None\n    return None",
    ),
    # ------------------------------------------------------------------------------------------------ an object is put
    BrokenCode(
        "object: it is put without If-None-Match",
        S3,
        'already_exists(location), IfNoneMatch="*", **metadata)',
        "already_exists(location), **metadata)",
    ),
    BrokenCode(
        "object: 412 counts as success",
        S3,
        "return outcome is PutOutcome.DONE\n            if not may_be_done:\n",
        "return outcome is PutOutcome.DONE\n            if outcome is PutOutcome.TAKEN:\n                return True\n"
        "            if not may_be_done:\n",
    ),
    BrokenCode(
        "object: 409 counts as success",
        S3,
        "return outcome is PutOutcome.DONE\n            if not may_be_done:\n",
        "return outcome is PutOutcome.DONE\n            if outcome is PutOutcome.CONFLICT:\n                return True\n"
        "            if not may_be_done:\n",
    ),
    BrokenCode("object: no checksum is sent", S3, "Body=data, ChecksumSHA256=digest, **fields", "Body=data, **fields"),
    BrokenCode(
        "object: an answer without a checksum is believed",
        S3,
        "return PutOutcome.DONE if is_proven else PutOutcome.UNPROVEN",
        "return PutOutcome.DONE",
    ),
    BrokenCode(
        "object: it is not read back where the answer has no checksum",
        S3,
        "            self._check_written(location, data)\n",
        "            pass\n",
    ),
    BrokenCode("object: what is read back is not compared", S3, "        if found != data:\n", "        if False:\n"),
    BrokenCode(
        "object: a lost answer counts as success",
        S3,
        "if may_be_done and is_done(reason):",
        "if may_be_done:",
    ),
    BrokenCode(
        "object: after a lost answer it is not looked up",
        S3,
        "if may_be_done and is_done(reason):",
        "if False:",
    ),
    BrokenCode("object: after a lost answer other bytes are taken for ours", S3, "if there != data or (run", "if (run"),
    BrokenCode(
        "object: after a lost answer that of another run is taken for ours",
        S3,
        "if there != data or (run or self.settings.run) != self.settings.run:",
        "if there != data:",
    ),
    BrokenCode(
        "object: a put may take effect several times, unseen",
        S3,
        "client_of(self.settings, 1).put_object",
        "client_of(self.settings).put_object",
    ),
    BrokenCode(
        "object: a lost answer is reported as a failure",
        REQUESTS,
        "    return PutOutcome.UNKNOWN\n",
        "    return PutOutcome.FAILED\n",
    ),
    BrokenCode(
        "object: 412 is taken for an answer to try again",
        REQUESTS,
        "        return PutOutcome.TAKEN\n",
        "        return PutOutcome.REPEAT\n",
    ),
    BrokenCode(
        "object: a store that ignores If-None-Match is written to",
        S3,
        'an object could be replaced: nothing is written here"\n        raise',
        'an object could be replaced: nothing is written here"\n        return\n        raise',
    ),
    BrokenCode(
        "object: the probe of the store stays",
        S3,
        "            finally:\n                self._delete_probe(location)\n",
        "            finally:\n                pass\n",
    ),
    BrokenCode(
        "object: the caller is not asked before the put",
        S3,
        "        if before_name is not None:\n            before_name(0)\n"
        "        self._create(os.path.join(directory, name), data)\n",
        "        self._create(os.path.join(directory, name), data)\n",
    ),
    BrokenCode(
        "object: the caller is asked after the put",
        S3,
        "        if before_name is not None:\n            before_name(0)\n"
        "        self._create(os.path.join(directory, name), data)\n",
        "        self._create(os.path.join(directory, name), data)\n        if before_name is not None:\n"
        "            before_name(0)\n",
    ),
    # ------------------------------------------------------------------------------------------------ an object is replaced
    BrokenCode(
        "replaced object: it is put without If-Match",
        S3_REPLACE,
        'fields = {"IfMatch": was.identity.etag, **was.kept}',
        "fields = dict(was.kept)",
    ),
    BrokenCode(
        "replaced object: 412 counts as success",
        S3,
        "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN):",
        "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN, PutOutcome.TAKEN):",
    ),
    BrokenCode(
        "replaced object: its headers are lost",
        S3_REPLACE,
        'fields = {"IfMatch": was.identity.etag, **was.kept}',
        'fields = {"IfMatch": was.identity.etag}',
    ),
    BrokenCode(
        "replaced object: tags and locks are lost", S3_REPLACE, "        if was.not_kept is not None:\n", "        if False:\n"
    ),
    BrokenCode(
        "replaced object: a lost answer counts as success",
        S3,
        "if may_be_done and is_done(reason):",
        "if may_be_done:",
    ),
    BrokenCode(
        "replaced object: after a lost answer it is not looked up",
        S3,
        "if may_be_done and is_done(reason):",
        "if False:",
    ),
    BrokenCode(
        "replaced object: after a lost answer other bytes are taken for ours",
        S3_REPLACE,
        "        if found.data == data:\n",
        "        if True:\n",
    ),
    BrokenCode(
        "replaced object: a store that ignores If-Match is written to",
        S3_REPLACE,
        '        else:\n            raise RefusedError("the store ignores If-Match',
        '        else:\n            return\n            raise RefusedError("the store ignores If-Match',
    ),
    # ------------------------------------------------------------------------------------------------ an object in parts
    BrokenCode("parts: completed without If-None-Match", MULTIPART, '"IfNoneMatch": "*", ', ""),
    BrokenCode(
        "parts: 412 counts as success",
        MULTIPART,
        "                self._abort(location, upload_id)\n                raise already_exists(location)",
        "                return",
    ),
    BrokenCode(
        "parts: what came too late stays",
        MULTIPART,
        "            if outcome is PutOutcome.TAKEN:\n                self._abort(location, upload_id)\n",
        "            if outcome is PutOutcome.TAKEN:\n",
    ),
    BrokenCode(
        "parts: what arrived is not compared",
        MULTIPART,
        "if expected != self._etag_at(location) and not holds_bytes(self.store, location, source):",
        "if False:",
    ),
    BrokenCode(
        "parts: those of an earlier run are taken with other bytes",
        MULTIPART,
        "expected if there.get(number) == expected else",
        "there[number] if number in there else",
    ),
    BrokenCode(
        "parts: those of an earlier run are sent again",
        MULTIPART,
        "upload_id = self._found(location) or self._begin(location)",
        "upload_id = self._begin(location)",
    ),
    BrokenCode(
        "parts: a lost answer is reported as a failure",
        MULTIPART,
        "            if (is_gone or not is_known) and self._is_there(location, reason):\n                raise already_exists(location)\n",
        "            if not is_known:\n                break\n",
    ),
    BrokenCode(
        "parts: an unknown outcome is reported as a failure",
        MULTIPART,
        "        if not is_known:\n            raise",
        "        if False:\n            raise",
    ),
    BrokenCode(
        "parts: a store that ignores If-None-Match is written to",
        MULTIPART,
        '            raise RefusedError(f"{message}: nothing is written here", path=directory)\n',
        "",
    ),
    BrokenCode(
        "parts: another object is taken for ours",
        MULTIPART,
        "        if found.size_bytes != source.size_bytes:\n            return False\n",
        "        return True\n",
    ),
    # ------------------------------------------------------------------------------------------------ repairs and uploads
    BrokenCode("repair: it is not announced", REPAIR, "    announce()\n", ""),
    BrokenCode(
        "repair: it is announced after the first write",
        REPAIR,
        "    announce()\n    if repair.appended:\n        data = repair.indexes.data + repair.appended\n"
        "        store.replace(repair.indexes_at, data, repair.indexes)\n",
        "    if repair.appended:\n        data = repair.indexes.data + repair.appended\n"
        "        store.replace(repair.indexes_at, data, repair.indexes)\n        announce()\n",
    ),
    BrokenCode(
        "repair: its line is not on the device before the writes",
        UNDO_FILE,
        "        self._journal.append(line_of(announced))\n",
        "        self._journal.append(line_of(announced), sync=False)\n",
    ),
    BrokenCode(
        "repair: the manifest comes before the indexes",
        REPAIR,
        "    if repair.appended:\n",
        "    store.replace(repair.manifest_at, repair.new_manifest, repair.manifest)\n    if repair.appended:\n",
    ),
    BrokenCode("repair: the indexes are not read back", REPAIR, "        read_back(store, repair.indexes_at, data)\n", ""),
    BrokenCode(
        "repair: the manifest is not read back", REPAIR, "    read_back(store, repair.manifest_at, repair.new_manifest)\n", ""
    ),
    BrokenCode("repair: what is read back is not compared", REPAIR, "if found is None or found.data != data:", "if False:"),
    BrokenCode(
        "repair: objects may have changed since they were listed",
        REPAIR,
        "    if not _is_same(found.identity, listed.identity):\n",
        "    if False:\n",
    ),
    BrokenCode(
        "upload: the manifest comes before the indexes",
        UPLOAD,
        "    _create_or_compare(\n        target.store, target.location(upload.start_offset",
        "    manifest_at = target.location(upload.start_offset, claim.segment_id, AivenObject.MANIFEST)\n"
        "    _create_or_compare(target.store, manifest_at, manifest)\n"
        "    _create_or_compare(\n        target.store, target.location(upload.start_offset",
    ),
    BrokenCode("upload: local files may have changed", UPLOAD, "    upload.check_unchanged()\n", ""),
    BrokenCode(
        "upload: the claim is not looked at before the manifest",
        UPLOAD,
        "    fence.check(target, claim, upload.start_offset, upload.end_offset)\n",
        "",
    ),
    BrokenCode(
        "upload: another segment under the name is kept",
        UPLOAD,
        "        if not is_created and not large.holds(location, source):\n",
        "        if False:\n",
    ),
    BrokenCode(
        "upload: other indexes or another manifest under the name are kept",
        UPLOAD,
        "if not _is_created(store, location, data) and store.read_small(location, max(2 * len(data), 1 << 20)) != data:",
        "if not _is_created(store, location, data) and False:",
    ),
)
