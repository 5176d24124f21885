"""Every step that publishes a file or an object safely, left out or done wrong.

Each entry breaks one guarantee: what is published is whole, durable, our own bytes, with the right owner, announced before it appears, and
never in the place of something else.
"""

from __future__ import annotations

from broken_code import BrokenCode

(
    ATOMIC,
    PLACE,
    CALLS,
    WHOLE,
    REPLACE,
    DIRECTORY,
    NEW,
    SMALL,
    JOURNAL,
    DURABLE,
    LINKED,
    LOCK,
    LOCAL,
    LARGE,
    S3,
    REQUESTS,
    MULTIPART,
    S3_REPLACE,
) = (
    "snaprebuild.storage.local.atomic_file",
    "snaprebuild.storage.local.output_directory",
    "snaprebuild.storage.local.file_calls",
    "snaprebuild.storage.local.whole_file",
    "snaprebuild.storage.local.replace_file",
    "snaprebuild.storage.local.new_directory",
    "snaprebuild.storage.local.new_file",
    "snaprebuild.storage.local.small_file",
    "snaprebuild.storage.local.journal_file",
    "snaprebuild.storage.local.durable_directory",
    "snaprebuild.storage.local.linked_files",
    "snaprebuild.storage.local.record_lock",
    "snaprebuild.storage.local.store",
    "snaprebuild.storage.large_objects",
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
    # ------------------------------------------------------------------------------------------------ a new file (atomic_file)
    BrokenCode(
        "create: a left-over temporary file is not removed",
        ATOMIC,
        "        _remove_leftover(place, temporary_name)\n        _refuse_existing",
        "        _refuse_existing",
    ),
    BrokenCode(
        "create: a left-over temporary file is written over",
        ATOMIC,
        "        _remove_leftover(place, temporary_name)\n        _refuse_existing(place, name)\n"
        "        fd = _open_temporary(place, temporary_name)\n",
        "        _refuse_existing(place, name)\n"
        "        fd = place.calls.open(temporary_name, os.O_RDWR | os.O_CREAT, 0o644, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "create: a left-over temporary file is trusted and gets the name",
        ATOMIC,
        "    with opened(directory, calls) as place:\n        _remove_leftover(place, temporary_name)\n",
        "    with opened(directory, calls) as place:\n        if place.exists(temporary_name):\n"
        "            return calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "create: a left-over that is no regular file is removed",
        ATOMIC,
        "if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):",
        "if False:",
    ),
    BrokenCode(
        "create: the temporary file may be that of another run",
        ATOMIC,
        "flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
        "flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW",
    ),
    BrokenCode(
        "create: the temporary file is not locked",
        ATOMIC,
        "            _lock_temporary(place, temporary_name, fd)\n            try:\n"
        "                _take_ownership(place, temporary_name, fd, owner)\n                _write",
        "            try:\n                _take_ownership(place, temporary_name, fd, owner)\n                _write",
    ),
    BrokenCode("create: without locks it is written all the same", ATOMIC, "raise failure from error", "return"),
    BrokenCode(
        "create: the lock may be on a file that lost its name",
        ATOMIC,
        "is_ours = place.leads_to(temporary_name, fd)",
        "is_ours = True",
    ),
    BrokenCode(
        "create: the lock ends before the temporary name is removed",
        ATOMIC,
        "            _finish(place, temporary_name if is_linked",
        "            place.close(fd)\n            _finish(place, temporary_name if is_linked",
    ),
    BrokenCode("create: owner and mode are not set", ATOMIC, "    if owner is None:\n        return\n", "    return\n"),
    BrokenCode("create: the owner is not set", ATOMIC, "if (found.uid, found.gid) != (owner.uid, owner.gid):", "if False:"),
    BrokenCode("create: the mode is not set", ATOMIC, "if found.mode != owner.mode:", "if False:"),
    BrokenCode(
        "create: the mode is set before the owner",
        ATOMIC,
        "        if (found.uid, found.gid) != (owner.uid, owner.gid):\n            place.calls.fchown(fd, owner.uid, owner.gid)\n"
        "        if found.mode != owner.mode:\n            place.calls.fchmod(fd, owner.mode)\n",
        "        if found.mode != owner.mode:\n            place.calls.fchmod(fd, owner.mode)\n"
        "        if (found.uid, found.gid) != (owner.uid, owner.gid):\n            place.calls.fchown(fd, owner.uid, owner.gid)\n",
    ),
    BrokenCode(
        "create: an owner that the file system does not keep is accepted",
        ATOMIC,
        "keep their own.\n            found = Ownership.of(calls.fstat(fd))",
        "keep their own.\n            found = owner",
    ),
    BrokenCode(
        "create: owner and mode are set after the bytes are written",
        ATOMIC,
        "                _take_ownership(place, temporary_name, fd, owner)\n"
        "                _write(place, temporary_name, fd, blocks)\n",
        "                _write(place, temporary_name, fd, blocks)\n"
        "                _take_ownership(place, temporary_name, fd, owner)\n",
    ),
    BrokenCode(
        "create: a short write is accepted",
        ATOMIC,
        "            while rest:\n                taken = ",
        "            if rest:\n                taken = ",
    ),
    BrokenCode(
        "create: a write that takes no bytes is accepted",
        ATOMIC,
        'raise OSError(errno.EIO, "the file system takes no bytes")',
        "break",
    ),
    BrokenCode("create: the file is not synced", ATOMIC, "        place.calls.fsync(fd)\n", ""),
    BrokenCode(
        "create: an error of the sync is ignored",
        ATOMIC,
        "        place.calls.fsync(fd)\n",
        "        with contextlib.suppress(OSError):\n            place.calls.fsync(fd)\n",
    ),
    BrokenCode("create: it is not read back", ATOMIC, "                _read_back(place, temporary_name, fd, blocks)\n", ""),
    BrokenCode("create: what is read back is not compared", ATOMIC, "if difference is not None:", "if False:"),
    BrokenCode(
        "create: what is read back may be too short",
        ATOMIC,
        "            if not found or found != wanted:\n",
        "            if not found:\n                return None\n            if found != wanted:\n",
    ),
    BrokenCode(
        "create: what is read back may be too long",
        ATOMIC,
        "return position if calls.read(fd, 1) else None",
        "return None",
    ),
    BrokenCode(
        "create: an error of reading back is ignored",
        ATOMIC,
        "        difference = _first_difference(calls, again, blocks)\n    except OSError as error:\n        raise",
        "        difference = _first_difference(calls, again, blocks)\n    except OSError as error:\n        return\n        raise",
    ),
    BrokenCode(
        "create: it is read back from memory",
        ATOMIC,
        "as the kernel remembers them\n        calls.forget_cached(fd)",
        "as the kernel remembers them\n        pass",
    ),
    BrokenCode(
        "create: another file is read back",
        ATOMIC,
        "if not os.path.samestat(calls.fstat(again), calls.fstat(fd)):",
        "if False:",
    ),
    BrokenCode(
        "create: the caller is not asked before the name",
        ATOMIC,
        "if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n"
        "                is_linked",
        "is_linked",
    ),
    BrokenCode(
        "create: the caller is asked after the name",
        ATOMIC,
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n"
        "                is_linked = _give_name(place, temporary_name, name, fd)\n",
        "                is_linked = _give_name(place, temporary_name, name, fd)\n"
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n",
    ),
    BrokenCode(
        "create: the name comes before the bytes and the sync",
        ATOMIC,
        "                _write(place, temporary_name, fd, blocks)\n                _read_back(place, temporary_name, fd, blocks)\n"
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n"
        "                is_linked = _give_name(place, temporary_name, name, fd)\n",
        "                is_linked = _give_name(place, temporary_name, name, fd)\n"
        "                _write(place, temporary_name if is_linked else name, fd, blocks)\n"
        "                _read_back(place, temporary_name if is_linked else name, fd, blocks)\n"
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n",
    ),
    BrokenCode(
        "create: the name comes before reading back",
        ATOMIC,
        "                _read_back(place, temporary_name, fd, blocks)\n"
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n"
        "                is_linked = _give_name(place, temporary_name, name, fd)\n",
        "                if before_name is not None:\n                    before_name(_status_of(place, temporary_name, fd))\n"
        "                is_linked = _give_name(place, temporary_name, name, fd)\n"
        "                _read_back(place, temporary_name if is_linked else name, fd, blocks)\n",
    ),
    BrokenCode(
        "create: an existing file is replaced",
        ATOMIC,
        "place.calls.link(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "create: without hard links an existing file is replaced",
        ATOMIC,
        "place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)",
        "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
    ),
    BrokenCode(
        "create: after an error the name is not looked at",
        ATOMIC,
        "        if _has_name(place, name, fd, error):\n",
        "        if False:\n",
    ),
    BrokenCode(
        "create: another file under the name is taken for ours",
        ATOMIC,
        "        if _has_name(place, name, fd, error):\n",
        "        if error.errno == errno.EEXIST:\n",
    ),
    BrokenCode(
        "create: an unknown outcome is reported as a failure",
        ATOMIC,
        'raise place.unknown(name, f"may exist (giving the name failed with: {reason_of(cause)})", error) from cause',
        "return False",
    ),
    BrokenCode(
        "create: the entry of an existing file is not synced",
        ATOMIC,
        'failure = place.sync_failure(name, "exists and may not survive a power failure")\n    return failure or',
        "failure = None\n    return failure or",
    ),
    BrokenCode(
        "create: after a failure the temporary file stays",
        ATOMIC,
        "                is_linked = _give_name(place, temporary_name, name, fd)\n            except BaseException as error:\n"
        "                is_removed = _remove_own(place, temporary_name, fd)\n",
        "                is_linked = _give_name(place, temporary_name, name, fd)\n            except BaseException as error:\n"
        "                is_removed = True\n",
    ),
    BrokenCode(
        "create: after a failure the temporary file of another run is removed",
        ATOMIC,
        "        if place.leads_to(temporary_name, fd):\n",
        "        if True:\n",
    ),
    BrokenCode(
        "create: the temporary name is not removed",
        ATOMIC,
        "            place.calls.unlink(temporary_name, dir_fd=place.fd)\n        except FileNotFoundError",
        "            pass\n        except FileNotFoundError",
    ),
    BrokenCode(
        "create: that the temporary name stays is not reported",
        ATOMIC,
        '            failure = place.unknown(name, "exists, whole, but has its temporary name too", error)\n',
        "",
    ),
    BrokenCode(
        "create: the directory is not synced",
        ATOMIC,
        'failure = place.sync_failure(name, "exists and may not survive a power failure") or failure',
        "pass",
    ),
    BrokenCode(
        "create: the directory is synced before the temporary name is removed",
        ATOMIC,
        "            _finish(place, temporary_name if is_linked else None, name)\n",
        "            _finish(place, None, name)\n            if is_linked:\n"
        "                calls.unlink(temporary_name, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "create: an error of the directory's sync is not reported",
        ATOMIC,
        "    if failure is not None:\n        failure.leftover",
        "    if False:\n        failure.leftover",
    ),
    # ------------------------------------------------------------------------------------------------ the directory (place)
    BrokenCode("directory: it is not synced", PLACE, "            self.calls.fsync(self.fd)\n", "            pass\n"),
    BrokenCode("directory: an error of the sync is ignored", PLACE, "            return failure\n", "            return None\n"),
    BrokenCode(
        "directory: after any error of the sync a look at the name is enough",
        PLACE,
        "if error.errno in _NO_DIRECTORY_SYNC and self.exists(name):",
        "if self.exists(name):",
    ),
    BrokenCode(
        "directory: a name is removed that a live run holds",
        PLACE,
        "            self.calls.lock(fd)\n            # Whoever",
        "            # Whoever",
    ),
    BrokenCode(
        "directory: a name is removed that leads to another file by now",
        PLACE,
        "if not is_meant(fd) or not self.leads_to(name, fd):",
        "if not is_meant(fd):",
    ),
    BrokenCode(
        "directory: a file is removed that is not meant",
        PLACE,
        "if not is_meant(fd) or not self.leads_to(name, fd):",
        "if not self.leads_to(name, fd):",
    ),
    BrokenCode(
        "directory: two files with one name are taken for one file",
        PLACE,
        "return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)",
        "return self.exists(name)",
    ),
    BrokenCode(
        "directory: a name may lead out of it", PLACE, 'if name in ("", ".", "..") or "/" in name or "\\0" in name:', "if False:"
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
        ATOMIC,
        "    _remove_leftover(place, temporary_name)\n    fd = _open_temporary",
        "    fd = _open_temporary",
    ),
    BrokenCode(
        "replace: the temporary file is not locked",
        ATOMIC,
        "        _lock_temporary(place, temporary_name, fd)\n        try:\n            _take",
        "        try:\n            _take",
    ),
    BrokenCode(
        "replace: owner and mode are not set",
        ATOMIC,
        "            _take_ownership(place, temporary_name, fd, owner)\n            _write(place, temporary_name, fd, lambda",
        "            _write(place, temporary_name, fd, lambda",
    ),
    BrokenCode("replace: it is not read back", ATOMIC, "            _read_back(place, temporary_name, fd, lambda: (data,))\n", ""),
    BrokenCode(
        "replace: after a failure the temporary file stays",
        ATOMIC,
        "            yield fd\n        except BaseException as error:\n"
        "            is_removed = _remove_own(place, temporary_name, fd)\n",
        "            yield fd\n        except BaseException as error:\n            is_removed = True\n",
    ),
    BrokenCode(
        "replace: it may have changed before", REPLACE, "Ownership.of(_still(place, name, was))", "Ownership.of(os.stat(path))"
    ),
    BrokenCode("replace: it may have changed meanwhile", REPLACE, "            _still(place, name, was)\n", ""),
    BrokenCode("replace: another file may have the name", REPLACE, "or FileIdentity.of(status) != was:", "or False:"),
    BrokenCode(
        "replace: it is written in place",
        REPLACE,
        "            _rename(place, temporary_name, name, fd)\n",
        '            with open(path, "wb") as file:\n                file.write(data)\n'
        "            calls.unlink(temporary_name, dir_fd=place.fd)\n",
    ),
    BrokenCode(
        "replace: the directory is not synced",
        REPLACE,
        'if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):',
        "if failure := None:",
    ),
    BrokenCode("replace: after an error the name is not looked at", REPLACE, "if place.leads_to(name, fd):", "if False:"),
    BrokenCode(
        "replace: an unknown outcome is reported as a failure",
        REPLACE,
        "raise OutcomeUnknownError(message, path=place.path(name), errno=unseen.errno) from error",
        "pass",
    ),
    BrokenCode(
        "replace: a file that changes while it is read is taken",
        REPLACE,
        "if size != status.st_size or FileIdentity.of(os.fstat(fd)) != identity:",
        "if False:",
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
        SMALL,
        "    check_place(path)\n    directory, name",
        "    directory, name",
    ),
    BrokenCode(
        "plan: any file is replaced", SMALL, "if name in names and not _is_own(os.path.join(directory, name)):", "if False:"
    ),
    BrokenCode("plan: it is not synced", SMALL, "            os.fsync(file.fileno())\n", ""),
    BrokenCode("plan: it is synced before all bytes are written", SMALL, "            file.flush()\n", ""),
    BrokenCode("plan: only its writer may read it", SMALL, "        os.chmod(temporary, document_mode())\n", ""),
    BrokenCode(
        "plan: it is written in place",
        SMALL,
        "        os.replace(temporary, path)\n",
        '        with open(path, "w") as old, open(temporary) as new:\n            old.write(new.read())\n'
        "        os.unlink(temporary)\n",
    ),
    BrokenCode("plan: the directory is not synced", SMALL, "        sync_entries(directory)\n", ""),
    BrokenCode("plan: after a failure the temporary file stays", SMALL, "os.unlink(temporary)", "pass"),
    BrokenCode("table: it may be written among the files of a broker", NEW, "    check_journal_place(path)\n", ""),
    BrokenCode("table: it is not synced", NEW, "            os.fsync(file.fileno())\n", ""),
    BrokenCode("table: it is synced before all bytes are written", NEW, "            file.flush()\n", ""),
    BrokenCode("table: only its writer may read it", NEW, "            os.fchmod(file.fileno(), document_mode())\n", ""),
    BrokenCode(
        "table: an existing file is replaced", NEW, "OS.link(temporary, name, dir_fd=fd)", "OS.rename(temporary, name, dir_fd=fd)"
    ),
    BrokenCode(
        "table: without hard links an existing file is replaced",
        NEW,
        "OS.rename_noreplace(temporary, name, dir_fd=fd)",
        "OS.rename(temporary, name, dir_fd=fd)",
    ),
    BrokenCode(
        "table: the directory is not synced", NEW, "        sync_entries(directory)\n        return False", "        return False"
    ),
    BrokenCode(
        "table: without hard links the directory is not synced",
        NEW,
        "            sync_entries(directory)\n            return True",
        "            return True",
    ),
    BrokenCode("table: after a failure the temporary file stays", NEW, "os.unlink(temporary)", "pass"),
    BrokenCode("directories: a new one is not synced", DURABLE, "    sync_entries(parent)\n", ""),
    BrokenCode(
        "directories: only the last new one is synced",
        DURABLE,
        "    make_directories(parent)\n",
        "    os.makedirs(parent, exist_ok=True)\n",
    ),
    BrokenCode("directories: no names are synced", DURABLE, "        os.fsync(fd)\n", "        pass\n"),
    BrokenCode(
        "directories: an error of the sync is ignored", DURABLE, "            raise\n    finally", "            pass\n    finally"
    ),
    BrokenCode(
        "local: the directory may not survive",
        LOCAL,
        "                make_directories(directory)\n",
        "                os.makedirs(directory, exist_ok=True)\n",
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
        LARGE,
        "            make_directories(directory)\n",
        "            os.makedirs(directory, exist_ok=True)\n",
    ),
    BrokenCode(
        "large file: a source that became shorter is accepted",
        LARGE,
        "if source.read_into(start, part) != len(part):",
        "if source.read_into(start, part) < 0:",
    ),
    BrokenCode(
        "large file: one with other bytes is taken for ours",
        LARGE,
        "return all(one == other for one, other in pairs)",
        "return True",
    ),
    BrokenCode(
        "large file: the size is not compared",
        LARGE,
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
        JOURNAL,
        "    if os.path.lexists(path):\n        raise",
        "    if False:\n        raise",
    ),
    BrokenCode("journal: it may be written among the files of a broker", JOURNAL, "    check_place(path)\n", ""),
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
        "journal.append(self._line(step, number, offset, **facts))",
        "journal.append(self._line(step, number, offset, **facts), sync=False)",
    ),
    BrokenCode(
        "receipt: a file is not announced",
        WRITER,
        "            receipt.announce(partition, offset, rebuilt.judgement.snapshot_class.value, len(rebuilt.entries), made)\n",
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
        "                self._receipt.announce_set_aside(self._result.plan, offset, name, found)\n",
        "",
    ),
    BrokenCode(
        "receipt: what is set aside is announced after it was moved",
        IN_PLACE,
        "                self._receipt.announce_set_aside(self._result.plan, offset, name, found)\n"
        "            with contextlib.suppress(AlreadyExistsError):\n"
        "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n",
        "                pass\n            with contextlib.suppress(AlreadyExistsError):\n"
        "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n"
        "                self._receipt and self._receipt.announce_set_aside(self._result.plan, offset, name, found)\n",
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
        "os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW",
        "os.O_RDONLY | os.O_DIRECTORY",
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
        'self.put(location, data, IfNoneMatch="*", **metadata)',
        "self.put(location, data, **metadata)",
    ),
    BrokenCode(
        "object: 412 counts as success", S3, "if outcome is PutOutcome.DONE:", "if outcome in (PutOutcome.DONE, PutOutcome.TAKEN):"
    ),
    BrokenCode(
        "object: 409 counts as success",
        S3,
        "if outcome is PutOutcome.DONE:",
        "if outcome in (PutOutcome.DONE, PutOutcome.CONFLICT):",
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
        "                self._check_written(location, data)\n",
        "",
    ),
    BrokenCode("object: what is read back is not compared", S3, "        if found != data:\n", "        if False:\n"),
    BrokenCode(
        "object: a lost answer counts as success",
        S3,
        "if may_be_there and self._is_ours(location, data, reason):",
        "if may_be_there:",
    ),
    BrokenCode(
        "object: after a lost answer it is not looked up",
        S3,
        "if may_be_there and self._is_ours(location, data, reason):",
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
        'an object could be replaced: nothing is written here"\n                raise',
        'an object could be replaced: nothing is written here"\n                return\n                raise',
    ),
    BrokenCode(
        "object: the probe of the store stays",
        S3,
        "            finally:\n                self.delete_probe(location)\n",
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
    BrokenCode("replaced object: it is put without If-Match", S3_REPLACE, "IfMatch=was.identity.etag, **was.kept", "**was.kept"),
    BrokenCode(
        "replaced object: 412 counts as success",
        S3_REPLACE,
        "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN):",
        "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN, PutOutcome.TAKEN):",
    ),
    BrokenCode(
        "replaced object: its headers are lost", S3_REPLACE, "IfMatch=was.identity.etag, **was.kept", "IfMatch=was.identity.etag"
    ),
    BrokenCode(
        "replaced object: tags and locks are lost", S3_REPLACE, "        if was.not_kept is not None:\n", "        if False:\n"
    ),
    BrokenCode(
        "replaced object: a lost answer counts as success",
        S3_REPLACE,
        "if may_be_done and self._is_done(location, data, was, reason):",
        "if may_be_done:",
    ),
    BrokenCode(
        "replaced object: after a lost answer it is not looked up",
        S3_REPLACE,
        "if may_be_done and self._is_done(location, data, was, reason):",
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
        "                self._abort(location, upload_id)\n                raise _taken(location)",
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
        "            if (is_gone or not is_known) and self._is_there(location, reason):\n                raise _taken(location)\n",
        "            if not is_known:\n                break\n",
    ),
    BrokenCode(
        "parts: an unknown outcome is reported as a failure",
        MULTIPART,
        "        if not is_known:\n            message",
        "        if False:\n            message",
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
        "        self._journal.append(_line(announced))\n",
        "        self._journal.append(_line(announced), sync=False)\n",
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
