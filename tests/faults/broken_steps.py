"""Every step that publishes a file or an object safely, left out or done wrong.

Each entry breaks one guarantee: what is published is whole, durable, our own bytes, with the right owner, announced before it appears, and
never in the place of something else.
"""

from __future__ import annotations

from broken_code import broken_codes

LOCAL, S3, SNAPSHOTS, TIER = (f"snaprebuild.{name}" for name in ("storage.local", "storage.s3", "snapshots", "tier"))

_BY_MODULE = {
    f"{LOCAL}.publish": {
        "create: a left-over temporary file is not removed": (
            "        _remove_leftover(place, temporary_name)\n        _refuse_existing",
            "        _refuse_existing",
        ),
        "create: a left-over temporary file is written over": (
            "        _remove_leftover(place, temporary_name)\n        _refuse_existing(place, name)\n",
            "        _refuse_existing(place, name)\n"
            "        place = OpenDirectory(place.fd, place.shown, type('Calls', (), {'__getattr__': lambda _, n: getattr(calls, n),\n"
            "            'open': lambda _, n, flags, *more, **rest: calls.open(n, flags & ~os.O_EXCL, *more, **rest)})())\n",
        ),
        "create: a left-over temporary file is trusted and gets the name": (
            "    with opened(directory, calls) as place:\n        _remove_leftover(place, temporary_name)\n",
            "    with opened(directory, calls) as place:\n        if place.is_taken(temporary_name):\n"
            "            return calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)\n",
        ),
        "create: a left-over that is no regular file is removed": (
            "if not stat.S_ISREG(place.calls.stat(temporary_name, dir_fd=place.fd).st_mode):",
            "if False:",
        ),
        "create: the temporary file may be that of another run": (
            "flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW",
            "flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW",
        ),
        "create: the temporary file is not locked": ("            temporary.lock()\n", "            pass\n"),
        "create: without locks it is written all the same": ("raise failure from error", "return"),
        "create: the lock may be on a file that lost its name": (
            "is_ours = self.place.leads_to(self.name, self.fd)",
            "is_ours = True",
        ),
        "create: the lock ends before the temporary name is removed": (
            "        _finish(self.place, self.name if is_linked",
            "        self.place.close(self.fd)\n        _finish(self.place, self.name if is_linked",
        ),
        "create: owner and mode are not set": ("        if owner is not None:\n", "        if False:\n"),
        "create: the owner is not set": ("if (found.uid, found.gid) != (owner.uid, owner.gid):", "if False:"),
        "create: the mode is not set": ("if found.mode != owner.mode:", "if False:"),
        "create: the mode is set before the owner": (
            "            if (found.uid, found.gid) != (owner.uid, owner.gid):\n"
            "                self.place.calls.fchown(self.fd, owner.uid, owner.gid)\n"
            "            if found.mode != owner.mode:\n                self.place.calls.fchmod(self.fd, owner.mode)\n",
            "            if found.mode != owner.mode:\n                self.place.calls.fchmod(self.fd, owner.mode)\n"
            "            if (found.uid, found.gid) != (owner.uid, owner.gid):\n"
            "                self.place.calls.fchown(self.fd, owner.uid, owner.gid)\n",
        ),
        "create: an owner that the file system does not keep is accepted": (
            "keep their own.\n                found = Ownership.of(calls.fstat(self.fd))",
            "keep their own.\n                found = owner",
        ),
        "create: owner and mode are set after the bytes are written": (
            "        if owner is not None:\n            self._take_ownership(owner)\n        self._write(blocks)\n",
            "        self._write(blocks)\n        if owner is not None:\n            self._take_ownership(owner)\n",
        ),
        "create: a short write is accepted": (
            "                while rest:\n                    taken = ",
            "                if rest:\n                    taken = ",
        ),
        "create: a write that takes no bytes is accepted": (
            'raise OSError(errno.EIO, "the file system takes no bytes")',
            "break",
        ),
        "create: the file is not synced": ("            self.sync()\n", ""),
        "create: an error of the sync is ignored": (
            "            self.sync()\n",
            "            with contextlib.suppress(OSError):\n                self.sync()\n",
        ),
        "create: it is not read back": ("        self._read_back(blocks)\n", ""),
        "create: what is read back is not compared": ("if difference is not None:", "if False:"),
        "create: what is read back may be too short": (
            "            if not found or found != wanted:\n",
            "            if not found:\n                return None\n            if found != wanted:\n",
        ),
        "create: what is read back may be too long": ("return position if calls.read(fd, 1) else None", "return None"),
        "create: an error of reading back is ignored": (
            "            difference = _first_difference(calls, again, blocks)\n        except OSError as error:\n            raise",
            "            difference = _first_difference(calls, again, blocks)\n        except OSError as error:\n"
            "            return\n            raise",
        ),
        "create: it is read back from memory": (
            "with those in the page cache\n            calls.forget_cached(self.fd)",
            "with those in the page cache\n            pass",
        ),
        "create: another file is read back": (
            "if not os.path.samestat(calls.fstat(again), calls.fstat(self.fd)):",
            "if False:",
        ),
        "create: the caller is not asked before the name": (
            "            if before_name is not None:\n                before_name(temporary.status())\n",
            "",
        ),
        "create: the caller is asked after the name": (
            "            if before_name is not None:\n                before_name(temporary.status())\n"
            "            temporary.link_as(name)\n",
            "            temporary.link_as(name)\n            if before_name is not None:\n"
            "                before_name(temporary.status())\n",
        ),
        "create: the name comes before the bytes and the sync": (
            "        self._write(blocks)\n        self._read_back(blocks)\n",
            "        self.place.calls.link(self.name, self.name.removesuffix('.tmp'), dir_fd=self.place.fd)\n"
            "        self._write(blocks)\n        self._read_back(blocks)\n",
        ),
        "create: the name comes before reading back": (
            "        self._read_back(blocks)\n\n    def",
            "        self.place.calls.link(self.name, self.name.removesuffix('.tmp'), dir_fd=self.place.fd)\n"
            "        self._read_back(blocks)\n\n    def",
        ),
        "create: an existing file is replaced": (
            "place.calls.link(temporary_name, name, dir_fd=place.fd)",
            "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
        ),
        "create: without hard links an existing file is replaced": (
            "place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)",
            "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
        ),
        "create: after an error the name is not looked at": (
            'if _has_name(place, name, fd, error, "may exist (giving the name"):',
            "if False:",
        ),
        "create: another file under the name is taken for ours": (
            'if _has_name(place, name, fd, error, "may exist (giving the name"):',
            "if error.errno == errno.EEXIST:",
        ),
        "create: an unknown outcome is reported as a failure": (
            'raise place.unknown(name, f"{risk} failed with: {reason_of(cause)})", error) from cause',
            "return False",
        ),
        "create: the entry of an existing file is not synced": (
            'failure = place.sync_failure(name, "exists and may not survive a power failure")\n    return failure or',
            "failure = None\n    return failure or",
        ),
        "create: after a failure the temporary file stays": (
            "is_removed = temporary.is_named or temporary.remove()",
            "is_removed = True",
        ),
        "create: after a failure the temporary file of another run is removed": (
            "            if self.place.leads_to(self.name, self.fd):\n",
            "            if True:\n",
        ),
        "create: the temporary name is not removed": (
            "            place.calls.unlink(temporary_name, dir_fd=place.fd)\n        except FileNotFoundError",
            "            pass\n        except FileNotFoundError",
        ),
        "create: that the temporary name stays is not reported": (
            '            failure = place.unknown(name, "exists, whole, but has its temporary name too", error)\n',
            "",
        ),
        "create: the directory is not synced": (
            'failure = place.sync_failure(name, "exists and may not survive a power failure") or failure',
            "pass",
        ),
        "create: the directory is synced before the temporary name is removed": (
            "        _finish(self.place, self.name if is_linked else None, name)\n",
            "        _finish(self.place, None, name)\n        if is_linked:\n"
            "            self.place.calls.unlink(self.name, dir_fd=self.place.fd)\n",
        ),
        "create: an error of the directory's sync is not reported": (
            "    if failure is not None:\n        failure.leftover",
            "    if False:\n        failure.leftover",
        ),
        "replace: a left-over temporary file is not removed": (
            "        _remove_leftover(place, temporary_name)\n        with temporary_file",
            "        with temporary_file",
        ),
        "replace: the temporary file is not locked": ("            temporary.lock()\n", "            pass\n"),
        "replace: owner and mode are not set": (
            "temporary.fill(lambda: (data,), owner)",
            "temporary.fill(lambda: (data,), None)",
        ),
        "replace: it is not read back": ("        self._read_back(blocks)\n", ""),
        "replace: after a failure the temporary file stays": (
            "is_removed = temporary.is_named or temporary.remove()",
            "is_removed = True",
        ),
        "replace: it may have changed before": ("Ownership.of(_unchanged(place, name, was))", "Ownership.of(os.stat(path))"),
        "replace: it may have changed meanwhile": ("            _unchanged(place, name, was)\n", ""),
        "replace: another file may have the name": ("or FileIdentity.of(status) != was:", "or False:"),
        "replace: it is written in place": (
            "            temporary.rename_over(name)\n",
            '            with open(path, "wb") as file:\n                file.write(data)\n'
            "            calls.unlink(temporary_name, dir_fd=place.fd)\n",
        ),
        "replace: the directory is not synced": (
            'if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):',
            "if failure := None:",
        ),
        "replace: after an error the name is not looked at": (
            'if not _has_name(place, name, self.fd, error, "may have been replaced (renaming"):',
            "if True:",
        ),
        "replace: an unknown outcome is reported as a failure": (
            'raise place.unknown(name, f"{risk} failed with: {reason_of(cause)})", error) from cause',
            "return False",
        ),
        "plan: the directory is not synced": (
            'if failure := place.sync_failure(name, "was replaced, and may be the old one after a power failure"):',
            "if failure := None:",
        ),
        "plan: after a failure the temporary file stays": (
            "is_removed = temporary.is_named or temporary.remove()",
            "is_removed = True",
        ),
        "table: an existing file is replaced": (
            "place.calls.link(temporary_name, name, dir_fd=place.fd)",
            "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
        ),
        "table: without hard links an existing file is replaced": (
            "place.calls.rename_noreplace(temporary_name, name, dir_fd=place.fd)",
            "place.calls.rename(temporary_name, name, dir_fd=place.fd)",
        ),
        "table: the directory is not synced": (
            'failure = place.sync_failure(name, "exists and may not survive a power failure") or failure',
            "pass",
        ),
        "table: after a failure the temporary file stays": (
            "is_removed = temporary.is_named or temporary.remove()",
            "is_removed = True",
        ),
    },
    f"{LOCAL}.directories": {
        "directory: it is not synced": ("            self.calls.fsync(self.fd)\n", "            pass\n"),
        "directory: an error of the sync is ignored": ("            return failure\n", "            return None\n"),
        "directory: after any error of the sync a look at the name is enough": (
            "if error.errno in _NO_DIRECTORY_SYNC and self._exists(name):",
            "if self._exists(name):",
        ),
        "directory: a name is removed that a live run holds": (
            "            self.calls.lock(fd)\n            # The run",
            "            # The run",
        ),
        "directory: a name is removed that leads to another file by now": (
            "if not is_meant(fd) or not self.leads_to(name, fd):",
            "if not is_meant(fd):",
        ),
        "directory: a file is removed that is not meant": (
            "if not is_meant(fd) or not self.leads_to(name, fd):",
            "if not self.leads_to(name, fd):",
        ),
        "directory: two files with one name are taken for one file": (
            "return os.path.samestat(self.calls.stat(name, dir_fd=self.fd), status)",
            "return self._exists(name)",
        ),
        "directory: a name may lead out of it": ('if name in ("", ".", "..") or "/" in name or "\\0" in name:', "if False:"),
        "directories: a new one is not synced": ("    sync_entries(parent)\n", ""),
        "directories: only the last new one is synced": (
            "    make_directories(parent)\n",
            "    os.makedirs(parent, exist_ok=True)\n",
        ),
        "directories: no names are synced": ("        os.fsync(fd)\n", "        pass\n"),
        "directories: an error of the sync is ignored": ("            raise\n    finally", "            pass\n    finally"),
    },
    f"{LOCAL}.file_calls": {
        "calls: fsync is not called": ("os.fsync(fd)", "pass"),
        "calls: the lock is not taken": ("record_lock.take(fd)", "pass"),
        "calls: the owner is not set": ("os.fchown(fd, uid, gid)", "pass"),
        "calls: the mode is not set": ("os.fchmod(fd, mode)", "pass"),
        "calls: the cache is not dropped": ("os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)", "pass"),
        "calls: a name is not removed": ("os.unlink(name, dir_fd=dir_fd)", "pass"),
        "calls: the umask of the process counts": ("umask = os.umask(0o022)", "umask = os.umask(os.umask(0o077))"),
        "calls: looking at a name follows links": (
            "os.stat(name, dir_fd=dir_fd, follow_symlinks=False)",
            "os.stat(name, dir_fd=dir_fd, follow_symlinks=True)",
        ),
        "calls: a hard link is made to what a symbolic link leads to": (
            "dst_dir_fd=dir_fd, follow_symlinks=False)",
            "dst_dir_fd=dir_fd, follow_symlinks=True)",
        ),
        "calls: a hard link replaces": (
            "os.link(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd, follow_symlinks=False)",
            "os.replace(name, new_name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)",
        ),
        "calls: the rename that does not replace replaces": ("_RENAME_NOREPLACE) != 0", "0) != 0"),
    },
    f"{LOCAL}.record_lock": {
        "lock: reading the file drops it": (
            "fcntl.F_OFD_SETLK, _whole_file(fcntl.F_WRLCK)",
            "fcntl.F_SETLK, _whole_file(fcntl.F_WRLCK)",
        ),
    },
    f"{LOCAL}.whole_file": {
        "second name: the file may have a third one": ("and status.st_nlink == 2 and", "and"),
        "second name: it may be that of another file": (
            "status.st_nlink == 2 and place.leads_to_file(name, status)",
            "status.st_nlink == 2",
        ),
        "second name: it is not looked at again under the lock": (
            "place.is_unlinked(temporary_name, lambda fd: is_second_name(calls.fstat(fd)))",
            "place.is_unlinked(temporary_name, lambda fd: True)",
        ),
        "second name: the directory is not synced": (
            'if failure := place.sync_failure(name, "exists, and a power failure may bring its temporary name back"):',
            "if failure := None:",
        ),
        "remove: what is no regular file is removed": (
            "if not stat.S_ISREG(calls.stat(name, dir_fd=place.fd).st_mode):",
            "if False:",
        ),
        "remove: any file is removed": ("place.is_unlinked(name, is_meant)", "place.is_unlinked(name, lambda fd: True)"),
        "remove: the directory is not synced": (
            'if failure := place.sync_failure(".", "a power failure may bring back what was removed"):',
            "if failure := None:",
        ),
        "set aside: what is no regular file is moved": ("if not stat.S_ISREG(status.st_mode):", "if False:"),
        "set aside: a file under the new name is replaced": (
            "calls.rename_noreplace(name, aside, dir_fd=place.fd)",
            "calls.rename(name, aside, dir_fd=place.fd)",
        ),
        "set aside: by link, the old name is removed before the new one is synced": (
            "            calls.fsync(place.fd)\n            calls.unlink(name, dir_fd=place.fd)\n    except",
            "            calls.unlink(name, dir_fd=place.fd)\n    except",
        ),
        "set aside: by link, the old name stays": (
            "            calls.fsync(place.fd)\n            calls.unlink(name, dir_fd=place.fd)\n    except",
            "            calls.fsync(place.fd)\n    except",
        ),
        "set aside: the directory is not synced": (
            'if failure := place.sync_failure(aside, "was set aside and may have its old name after a power failure"):',
            "if failure := None:",
        ),
        "set aside: the old name that a killed run left stays": (
            "if is_aside and place.leads_to_file(name, status):",
            "if False:",
        ),
        "set aside: the old name that a killed run left is removed before the new one is synced": (
            "                calls.fsync(place.fd)  # a run that was stopped between link and unlink left both names\n",
            "",
        ),
        "set aside: after an error the names are not looked at": (
            "is_aside = place.leads_to_file(aside, status)",
            "is_aside = False",
        ),
    },
    f"{LOCAL}.regular_file": {
        "replace: a file that changes while it is read is taken": (
            "    if has_changed(status, now):\n        raise",
            "    if False:\n        raise",
        ),
    },
    f"{LOCAL}.new_directory": {
        "partition: it has its name from the start": (
            "temporary = name[: NAME_LENGTH_MAX - len(mark)] + mark",
            'temporary = name + "-"',
        ),
        "partition: owner and mode are not set": (
            "            if owner is not None:\n                _take_directory(path, owner)\n",
            "",
        ),
        "partition: its files get no owner": (
            "create_file(path, each, data, owner=owner,",
            "create_file(path, each, data, owner=None,",
        ),
        "partition: the name comes before the files": (
            "            for each, data in files.items():\n"
            '                create_file(path, each, data, owner=owner, temporary_name=f"{each}.tmp", calls=calls)\n'
            "            _give_name(place, temporary, name)\n",
            "            _give_name(place, temporary, name)\n            for each, data in files.items():\n"
            "                create_file(os.path.join(log_dir, name), each, data, owner=owner,\n"
            '                    temporary_name=f"{each}.tmp", calls=calls)\n',
        ),
        "partition: an empty directory is replaced": (
            "place.calls.rename_noreplace(temporary, name, dir_fd=place.fd)",
            "place.calls.rename(temporary, name, dir_fd=place.fd)",
        ),
        "partition: after a failure it stays": ("shutil.rmtree(path, ignore_errors=True)", "pass"),
        "partition: the log directory is not synced": (
            'if failure := place.sync_failure(name, "exists and may not survive a power failure"):',
            "if failure := None:",
        ),
        "partition: after an error the name is not looked at": (
            "if status is not None and place.leads_to_file(name, status):",
            "if False:",
        ),
    },
    f"{LOCAL}.document_file": {
        "plan: it may be written among the files of a broker": (
            "    check_place(path)\n    with _published",
            "    with _published",
        ),
        "plan: any file is replaced": ("if name in names and not _is_own(os.path.join(directory, name)):", "if False:"),
        "plan: it is not synced": ("            temporary.sync()\n", ""),
        "plan: it is synced before all bytes are written": (
            '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n'
            "            temporary.sync()\n",
            '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n'
            "                temporary.sync()\n",
        ),
        "plan: only its writer may read it": ("document_mode(), is_locked", "0o600, is_locked"),
        "plan: it is written in place": (
            "                temporary.rename_over(name)\n",
            '                with open(path, "wb") as old, open(os.path.join(directory, temporary_name), "rb") as new:\n'
            "                    old.write(new.read())\n"
            "                os.unlink(os.path.join(directory, temporary_name))\n",
        ),
        "table: it may be written among the files of a broker": (
            "    check_new_place(path)\n    with _published",
            "    with _published",
        ),
        "table: it is not synced": ("            temporary.sync()\n", ""),
        "table: it is synced before all bytes are written": (
            '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n'
            "            temporary.sync()\n",
            '            with open(temporary.fd, "wb", closefd=False) as file:\n                yield file\n'
            "                temporary.sync()\n",
        ),
        "table: only its writer may read it": ("document_mode(), is_locked", "0o600, is_locked"),
        "journal: an existing name is not looked at": (
            "    if os.path.lexists(path):\n        raise",
            "    if False:\n        raise",
        ),
        "journal: it may be written among the files of a broker": ("    check_place(path)\n    if not", "    if not"),
    },
    f"{LOCAL}.store": {
        "local: the directory may not survive": (
            "        make_directories(directory)\n    except",
            "        os.makedirs(directory, exist_ok=True)\n    except",
        ),
        "local: the owner is not passed on": ("            owner=owner,\n", "            owner=None,\n"),
        "local: the caller is not asked before the name": (
            "before_name=None if before_name is None else lambda status: before_name(status.st_mtime_ns),",
            "before_name=None,",
        ),
        "large file: the directory may not survive": (
            "        make_directories(directory)\n    except",
            "        os.makedirs(directory, exist_ok=True)\n    except",
        ),
    },
    "snaprebuild.storage.store": {
        "large file: a source that became shorter is accepted": (
            "if source.read_into(start, part) != len(part):",
            "if source.read_into(start, part) < 0:",
        ),
        "large file: one with other bytes is taken for ours": (
            "return all(one == other for one, other in pairs)",
            "return True",
        ),
        "large file: the size is not compared": (
            "        if found.size_bytes != source.size_bytes:\n            return False\n",
            "",
        ),
    },
    f"{LOCAL}.journal_file": {
        "journal: a line is not synced": ("            os.fsync(self._fd)\n", ""),
        "journal: a line that is written during a sync counts as synced": (
            "self._synced = covered",
            "self._synced = self._written",
        ),
        "journal: a short write is accepted": ("                while data:\n", "                if data:\n"),
        "journal: lines follow one that was not written": (
            "                if self._failure is not None:\n",
            "                if False:\n",
        ),
        "journal: an error of the sync is ignored": (
            "            self._failure = self._failed(error)\n            raise self._failure from error\n\n    def sync",
            "            pass\n\n    def sync",
        ),
        "journal: an existing file is appended to": ("| os.O_CREAT | os.O_EXCL |", "| os.O_CREAT |"),
        "journal: its name is not synced": ("            sync_entries(directory)\n", ""),
        "journal: the directories above it may not survive": (
            "            make_directories(directory)\n",
            "            os.makedirs(directory, exist_ok=True)\n",
        ),
        "journal: one that cannot begin stays": ("os.unlink(path)  # nothing", "pass  # nothing"),
    },
    f"{SNAPSHOTS}.receipts.receipt": {
        "receipt: a line is not on the device before what it announces": (
            "self.announce_all(partition, [event], sync=True)",
            "self.announce_all(partition, [event], sync=False)",
        ),
    },
    f"{SNAPSHOTS}.rebuild.writer": {
        "receipt: a file is not announced": ("            report(rebuilt.announcement(Fingerprint.of(data, mtime_ns)))\n", ""),
        "receipt: a file is announced after it has its name": (
            "            before_name=announce,\n        )\n",
            "        )\n        announce(os.stat(rebuilt.path).st_mtime_ns)\n",
        ),
        "in place: the lock is not looked at before the name": ("        check()\n", ""),
    },
    f"{SNAPSHOTS}.rebuild.in_place_writer": {
        "receipt: what is set aside is not announced": (
            "                self._report(SetAsideAnnounced(offset, name, found))\n",
            "",
        ),
        "receipt: what is set aside is announced after it was moved": (
            "                self._report(SetAsideAnnounced(offset, name, found))\n"
            "            with contextlib.suppress(AlreadyExistsError):\n"
            "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n",
            "                pass\n            with contextlib.suppress(AlreadyExistsError):\n"
            "                set_aside(self._directory.path, snapshot_file_name(offset), name)\n"
            "                self._report and self._report(SetAsideAnnounced(offset, name, found))\n",
        ),
        "in place: the lock is not looked at before a file is set aside": (
            "        self._check_lock()\n        aside",
            "        aside",
        ),
        "in place: the segments may have changed beside a broker": ("            if not is_same:\n", "            if False:\n"),
        "in place: what was set aside is not put back after a failure": (
            "                self._put_back(wanted.offset, aside)\n",
            "                pass\n",
        ),
    },
    f"{SNAPSHOTS}.rebuild.staged_writer": {
        "staged: a file that is there is not compared": (
            "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:",
            "if False:",
        ),
        "staged: a file with another owner is taken": (
            "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns) or Ownership.of(os.lstat(rebuilt.path)) != owner:",
            "if found != Fingerprint.of(rebuilt.data(), found.mtime_ns):",
        ),
        "staged: the directory may not survive": (
            "            make_directories(rebuilt.target)\n",
            "            os.makedirs(rebuilt.target, exist_ok=True)\n",
        ),
    },
    f"{SNAPSHOTS}.staging.staged_check": {
        "install: a file that changed since it was staged is linked": (
            '        return "is not the one that was staged"\n',
            "        pass\n",
        ),
        "install: a file with another owner is linked": ("    if owner != wanted:\n", "    if False:\n"),
    },
    f"{LOCAL}.hard_links": {
        "install: an existing file is replaced": (
            "os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)",
            "os.replace(name, name, src_dir_fd=source_fd, dst_dir_fd=target_fd)",
        ),
        "install: an existing file is taken for the staged one": (
            "        if _is_same(source_fd, target_fd, name):\n",
            "        if True:\n",
        ),
        "install: a link to the directory is followed": ("flags = os.O_NOFOLLOW", "flags = 0"),
    },
    f"{SNAPSHOTS}.staging.install": {
        "install: the receipt is not synced before the links": ("                self._receipt.sync()\n", ""),
        "install: files are linked before they are announced": (
            '            with self._timed("announce"):\n',
            '            for each in linking:\n                self._link(each)\n            with self._timed("announce"):\n',
        ),
        "install: the lock is not looked at before the links": ("            self._verify_lock(checked)\n", ""),
        "install: the directories are not synced": ("        sync_directory(path)\n", "        pass\n"),
        "install: an error of the sync is not reported": (
            "        return error\n    return None",
            "        return None\n    return None",
        ),
    },
    f"{S3}.store": {
        "object: it is put without If-None-Match": (
            'already_exists(location), IfNoneMatch="*", **metadata)',
            "already_exists(location), **metadata)",
        ),
        "object: 412 counts as success": (
            "return outcome is PutOutcome.DONE\n            if not may_be_done:\n",
            "return outcome is PutOutcome.DONE\n            if outcome is PutOutcome.TAKEN:\n                return True\n"
            "            if not may_be_done:\n",
        ),
        "object: 409 counts as success": (
            "return outcome is PutOutcome.DONE\n            if not may_be_done:\n",
            "return outcome is PutOutcome.DONE\n            if outcome is PutOutcome.CONFLICT:\n"
            "                return True\n            if not may_be_done:\n",
        ),
        "object: no checksum is sent": ("Body=data, ChecksumSHA256=digest, **fields", "Body=data, **fields"),
        "object: an answer without a checksum is believed": (
            "return PutOutcome.DONE if is_proven else PutOutcome.UNPROVEN",
            "return PutOutcome.DONE",
        ),
        "object: it is not read back where the answer has no checksum": (
            "            self._check_written(location, data)\n",
            "            pass\n",
        ),
        "object: what is read back is not compared": ("        if found != data:\n", "        if False:\n"),
        "object: a lost answer counts as success": ("if may_be_done and is_done(reason):", "if may_be_done:"),
        "object: after a lost answer it is not looked up": ("if may_be_done and is_done(reason):", "if False:"),
        "object: after a lost answer other bytes are taken for ours": ("if there != data or (run", "if (run"),
        "object: after a lost answer that of another run is taken for ours": (
            "if there != data or (run or self.settings.run) != self.settings.run:",
            "if there != data:",
        ),
        "object: a put may take effect several times, unseen": (
            "client_of(self.settings, 1).put_object",
            "client_of(self.settings).put_object",
        ),
        "object: a store that ignores If-None-Match is written to": (
            'an object could be replaced: nothing is written here"\n        raise',
            'an object could be replaced: nothing is written here"\n        return\n        raise',
        ),
        "object: the probe of the store stays": (
            "            finally:\n                self._delete_probe(location)\n",
            "            finally:\n                pass\n",
        ),
        "object: the caller is not asked before the put": (
            "        if before_name is not None:\n            before_name(0)\n"
            "        self._create(os.path.join(directory, name), data)\n",
            "        self._create(os.path.join(directory, name), data)\n",
        ),
        "object: the caller is asked after the put": (
            "        if before_name is not None:\n            before_name(0)\n"
            "        self._create(os.path.join(directory, name), data)\n",
            "        self._create(os.path.join(directory, name), data)\n        if before_name is not None:\n"
            "            before_name(0)\n",
        ),
        "replaced object: 412 counts as success": (
            "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN):",
            "if outcome in (PutOutcome.DONE, PutOutcome.UNPROVEN, PutOutcome.TAKEN):",
        ),
        "replaced object: a lost answer counts as success": ("if may_be_done and is_done(reason):", "if may_be_done:"),
        "replaced object: after a lost answer it is not looked up": ("if may_be_done and is_done(reason):", "if False:"),
    },
    f"{S3}.requests": {
        "object: a lost answer is reported as a failure": ("    return PutOutcome.UNKNOWN\n", "    return PutOutcome.FAILED\n"),
        "object: 412 is taken for an answer to try again": (
            "        return PutOutcome.TAKEN\n",
            "        return PutOutcome.REPEAT\n",
        ),
    },
    f"{S3}.replace": {
        "replaced object: it is put without If-Match": (
            'fields = {"IfMatch": was.identity.etag, **was.kept}',
            "fields = dict(was.kept)",
        ),
        "replaced object: its headers are lost": (
            'fields = {"IfMatch": was.identity.etag, **was.kept}',
            'fields = {"IfMatch": was.identity.etag}',
        ),
        "replaced object: tags and locks are lost": ("        if was.not_kept is not None:\n", "        if False:\n"),
        "replaced object: after a lost answer other bytes are taken for ours": (
            "        if found.data == data:\n",
            "        if True:\n",
        ),
        "replaced object: a store that ignores If-Match is written to": (
            '        else:\n            raise RefusedError("the store ignores If-Match',
            '        else:\n            return\n            raise RefusedError("the store ignores If-Match',
        ),
    },
    f"{S3}.multipart": {
        "parts: completed without If-None-Match": ('"IfNoneMatch": "*", ', ""),
        "parts: 412 counts as success": (
            "                self._abort(location, upload_id)\n                raise already_exists(location)",
            "                return",
        ),
        "parts: what came too late stays": (
            "            if outcome is PutOutcome.TAKEN:\n                self._abort(location, upload_id)\n",
            "            if outcome is PutOutcome.TAKEN:\n",
        ),
        "parts: what arrived is not compared": (
            "if expected != self._etag_at(location) and not holds_bytes(self.store, location, source):",
            "if False:",
        ),
        "parts: those of an earlier run are taken with other bytes": (
            "expected if there.get(number) == expected else",
            "there[number] if number in there else",
        ),
        "parts: those of an earlier run are sent again": (
            "upload_id = self._found(location) or self._begin(location)",
            "upload_id = self._begin(location)",
        ),
        "parts: a lost answer is reported as a failure": (
            "            if (is_gone or not is_known) and self._is_there(location, reason):\n"
            "                raise already_exists(location)\n",
            "            if not is_known:\n                break\n",
        ),
        "parts: an unknown outcome is reported as a failure": (
            "        if not is_known:\n            raise",
            "        if False:\n            raise",
        ),
        "parts: a store that ignores If-None-Match is written to": (
            '            raise RefusedError(f"{message}: nothing is written here", path=directory)\n',
            "",
        ),
        "parts: another object is taken for ours": (
            "        if found.size_bytes != source.size_bytes:\n            return False\n",
            "        return True\n",
        ),
    },
    f"{TIER}.repair.copy_repair": {
        "repair: it is not announced": ("    announce()\n", ""),
        "repair: it is announced after the first write": (
            "    announce()\n    if repair.appended:\n        data = repair.indexes.data + repair.appended\n"
            "        store.replace(repair.indexes_at, data, repair.indexes)\n",
            "    if repair.appended:\n        data = repair.indexes.data + repair.appended\n"
            "        store.replace(repair.indexes_at, data, repair.indexes)\n        announce()\n",
        ),
        "repair: the manifest comes before the indexes": (
            "    if repair.appended:\n",
            "    store.replace(repair.manifest_at, repair.new_manifest, repair.manifest)\n    if repair.appended:\n",
        ),
        "repair: the indexes are not read back": ("        read_back(store, repair.indexes_at, data)\n", ""),
        "repair: the manifest is not read back": ("    read_back(store, repair.manifest_at, repair.new_manifest)\n", ""),
        "repair: what is read back is not compared": ("if found is None or found.data != data:", "if False:"),
        "repair: objects may have changed since they were listed": (
            "    if not _is_same(found.identity, listed.identity):\n",
            "    if False:\n",
        ),
    },
    f"{TIER}.repair.undo": {
        "repair: its line is not on the device before the writes": (
            "        self._journal.append(line_of(announced))\n",
            "        self._journal.append(line_of(announced), sync=False)\n",
        ),
    },
    f"{TIER}.upload.copy": {
        "upload: the manifest comes before the indexes": (
            "    _create_or_compare(\n        target.store, target.location(upload.start_offset",
            "    manifest_at = target.location(upload.start_offset, claim.segment_id, AivenObject.MANIFEST)\n"
            "    _create_or_compare(target.store, manifest_at, manifest)\n    _create_or_compare(\n"
            "        target.store, target.location(upload.start_offset",
        ),
        "upload: local files may have changed": ("    upload.check_unchanged()\n", ""),
        "upload: the claim is not looked at before the manifest": (
            "    fence.check(target, claim, upload.start_offset, upload.end_offset)\n",
            "",
        ),
        "upload: another segment under the name is kept": (
            "        if not is_created and not large.holds(location, source):\n",
            "        if False:\n",
        ),
        "upload: other indexes or another manifest under the name are kept": (
            "if not _is_created(store, location, data) and store.read_small(location, max(2 * len(data), 1 << 20)) != data:",
            "if not _is_created(store, location, data) and False:",
        ),
    },
}
BROKEN_STEPS = broken_codes(_BY_MODULE)
