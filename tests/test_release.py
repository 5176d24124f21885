"""A release as scripts/release makes it: the one file where there is no Python, what it says is inside, and what goes with it."""

from __future__ import annotations

import hashlib
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import click
import pytest
import typer
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from log_dirs import snapshots_in, truth
from manifests import FIXTURES, REPOSITORY
from releases import EPOCH
from typer.testing import CliRunner

from snaprebuild.cli.main import app
from snaprebuild.snapshots.engine.schedule import IN_PROCESS_BYTES_MAX

sys.path.insert(0, str(REPOSITORY / "scripts"))
from release import sign

pytestmark = pytest.mark.release

FIXTURE = "kafka27-mixed"
SECONDS_MAX = 180
CHROOT = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")


@pytest.fixture(scope="module")
def one_file(release: Path) -> Path:
    (found,) = release.glob(f"snaprebuild-*-linux-{os.uname().machine}")
    return found


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def run(
    file: Path, cache: Path, *arguments: object, before: tuple[object, ...] = (), **environment: str
) -> subprocess.CompletedProcess[str]:
    """With an environment that has nothing in it, no PATH either, but where to unpack."""
    command = [*map(str, before), str(file), *map(str, arguments)]
    variables = {"SNAPREBUILD_CACHE_DIR": str(cache), "HOME": str(cache), "PATH": ""} | environment
    return subprocess.run(command, env=variables, cwd=cache, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


def unpacked(cache: Path) -> Path:
    (found,) = (path for path in cache.iterdir() if re.fullmatch("[0-9a-f]{32}", path.name))
    return found


def many_bytes(root: Path) -> Path:
    """Copies of a segment: more than one process reads alone."""
    whole = {segment.stat().st_size: segment for segment in (FIXTURES / FIXTURE / "logs").rglob("*.log")}
    for number in range(IN_PROCESS_BYTES_MAX // max(whole) + 2):
        partition = root / f"copy-{number}"
        partition.mkdir(parents=True)
        shutil.copy(whole[max(whole)], partition)
    return root


def all_verbs() -> dict[str, click.Command]:
    root = typer.main.get_command(app)
    assert isinstance(root, click.Group)
    found = {}
    for name, command in root.commands.items():
        inner = {"": command} if not isinstance(command, click.Group) else command.commands
        found |= {f"{name} {own}".strip(): each for own, each in inner.items()}
    assert len(found) >= 29
    return found


def assert_as_kafka_says(out: Path) -> None:
    partitions = sorted(each.name for each in (FIXTURES / FIXTURE / "logs").iterdir() if each.is_dir())
    assert {each: snapshots_in(out / each) for each in partitions} == {each: truth(FIXTURE, each) for each in partitions}


# --- the one file -------------------------------------------------------------------------------------------------------------


def test_every_module_and_every_table_is_inside(one_file: Path, cache: Path) -> None:
    """Of both packages, but for those that need what the one file comes without."""
    assert run(one_file, cache, "--version").returncode == 0
    (packages,) = unpacked(cache).glob("lib/python3*/site-packages")
    for package in ("formats", "snaprebuild"):
        listed = {path.relative_to(REPOSITORY) for path in (REPOSITORY / package).rglob("*") if path.is_file()}
        wanted = {path for path in listed if not {"__pycache__", "spark", "py.typed"} & {*path.parts}}
        inside = {path.relative_to(packages).with_suffix("") for path in (packages / package).rglob("*") if path.is_file()}
        assert {path for path in wanted if path.with_suffix("") not in inside} == set()


@pytest.mark.parametrize("words", ["", "inspect", "tier upload", "rebuild"])
def test_help_with_an_empty_path(words: str, one_file: Path, cache: Path) -> None:
    arguments = [*words.split(), "--help"]
    told = run(one_file, cache, *arguments)
    assert (told.returncode, told.stderr) == (0, "")
    here = CliRunner().invoke(app, arguments, prog_name="snaprebuild").stdout
    assert len(here) > 200
    assert "".join(told.stdout.split()) == "".join(here.split()), "but for the width of the terminal"


def test_it_rebuilds_what_kafka_says(one_file: Path, cache: Path, tmp_path: Path) -> None:
    told = run(one_file, cache, "rebuild", FIXTURES / FIXTURE, "--out", tmp_path / "out", "--boundaries", "all")
    assert told.returncode == 0, told.stderr
    assert_as_kafka_says(tmp_path / "out")
    told = run(one_file, cache, "verify", FIXTURES / FIXTURE, "--output", "json")
    (tmp_path / "verified.json").write_text(told.stdout)
    told = run(one_file, cache, "report", tmp_path / "verified.json", "--html", tmp_path / "page.html")
    assert told.returncode in (0, 1), told.stderr
    assert "<html" in (tmp_path / "page.html").read_text()


def test_what_a_broker_gets_that_it_starts(one_file: Path, cache: Path, tmp_path: Path) -> None:
    """Neither paths of libraries nor variables of the interpreter, and the process that was started."""
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / FIXTURE / "logs", logs)
    script = 'echo "$$"; /usr/bin/env'
    started = subprocess.Popen(
        [one_file, "before-start", logs, "--", "/bin/sh", "-c", script],
        env={"SNAPREBUILD_CACHE_DIR": str(cache), "LD_LIBRARY_PATH": "/nowhere", "HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, story = started.communicate(timeout=SECONDS_MAX)
    number, *variables = out.splitlines()
    assert int(number) == started.pid, story
    names = {each.partition("=")[0] for each in variables}
    assert "LD_LIBRARY_PATH=/nowhere" in variables
    assert names <= {"SNAPREBUILD_CACHE_DIR", "LD_LIBRARY_PATH", "HOME", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_in_an_empty_file_system(one_file: Path, tmp_path: Path) -> None:
    """Without a C library, a loader, a shell; at first without /proc and /dev, too."""
    root = tmp_path / "root"
    for folder in ("proc", "dev", "tmp"):
        (root / folder).mkdir(parents=True)
    shutil.copy(one_file, root / "snaprebuild")
    shutil.copytree(FIXTURES / FIXTURE / "logs", root / "logs")
    many_bytes(root / "large")
    begin = f"env -i {CHROOT} {root} /snaprebuild"
    script = f"""
        {begin} --version || exit 9
        {begin} rebuild /logs --out /tmp/out --boundaries all --output json || exit 9
        mount -t proc proc {root}/proc
        {begin} verify /large --jobs 2 > /dev/null && exit 9
        mount --bind /dev {root}/dev
        {begin} rebuild /large --out /tmp/workers --boundaries all --jobs 2 > /dev/null || exit 9
        mount -t tmpfs -o noexec tmpfs {root}/tmp
        {begin} --version
    """
    command = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert told.returncode == 3, told.stderr
    version, document = told.stdout.split("\n", 1)
    assert version == "snaprebuild 0.1.0"
    assert json.loads(document)["totals"]["written"] == 23
    assert "worker processes cannot be started: No such file or directory. They need /dev/null and /dev/shm" in told.stderr
    assert "/tmp/snaprebuild-0: is mounted noexec" in told.stderr


def test_nothing_inside_needs_what_is_not_inside(one_file: Path, cache: Path) -> None:
    """Each library, and each version of a symbol, that an ELF file asks for is there. Only two programs are started by the system."""
    assert run(one_file, cache, "--version").returncode == 0
    tree = unpacked(cache)
    elf = [path for path in tree.rglob("*") if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    names, given, asked = {path.name for path in elf} | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, set(), {}
    for path in elf:
        told = subprocess.run(["readelf", "-dVlW", path], capture_output=True, text=True, check=True).stdout
        assert not {*re.findall(r"\(NEEDED\).*\[(.+)\]", told)} - names, path
        defined, _, needed = told.partition("Version needs section")
        given |= set(re.findall(r"Name: (GLIBC_\S+)", defined))
        asked |= dict.fromkeys(re.findall(r"Name: (GLIBC_\S+)", needed), path.name)
    assert not {version: name for version, name in asked.items() if version not in given}
    for program in (one_file, next(tree.glob("bin/python*"))):
        headers = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in headers


@pytest.mark.strace
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_local_verbs_ask_for_no_network(one_file: Path, cache: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    before = (shutil.which("strace"), "-f", "--seccomp-bpf", "-qq", "-e", "trace=network", "-o", trace)
    logs = tmp_path / "logs"
    shutil.copytree(FIXTURES / FIXTURE / "logs", logs)
    large = many_bytes(tmp_path / "large")
    seen = ""
    for arguments in (("verify", logs), ("rebuild", large, "--out", tmp_path / "workers", "--boundaries", "all", "--jobs", 2)):
        told = run(one_file, cache, *arguments, before=before)
        assert told.returncode in (0, 1), told.stderr
        seen += trace.read_text()
    assert not [line for line in seen.splitlines() if "AF_INET" in line or "AF_NETLINK" in line or "AF_PACKET" in line]
    families = set(re.findall(r"\b(?:socket|socketpair)\((\w+)", seen))
    assert families == {"AF_UNIX"}, "which workers are asked over: it has no address in any network"


def test_what_was_cleaned_away_comes_back(one_file: Path, tmp_path: Path) -> None:
    assert run(one_file, tmp_path, "--version").returncode == 0
    (tree,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert tree.stat().st_mode & 0o777 == 0o700
    first = tree.stat().st_ino
    assert run(one_file, tmp_path, "--version").returncode == 0
    assert tree.stat().st_ino == first, "what is whole is not unpacked again"
    shutil.rmtree(next(tree.glob("lib/python3*/json")))
    told = [run(one_file, tmp_path, "--version")]
    runners = [threading.Thread(target=lambda: told.append(run(one_file, tmp_path, "--version"))) for _ in range(4)]
    shutil.rmtree(next(tree.glob("lib/python3*/json")))
    for each in runners:
        each.start()
    for each in runners:
        each.join()
    assert {(each.returncode, each.stdout, each.stderr) for each in told} == {(0, "snaprebuild 0.1.0\n", "")}
    assert len(told) == 5
    assert [path.name for path in tmp_path.iterdir()] == [tree.name], "nothing half done is left"


def test_a_place_that_others_may_write_to_is_refused(one_file: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    told = run(one_file, tmp_path, "--version")
    assert (told.returncode, told.stdout) == (3, "")
    assert f"{tmp_path}: others may write there" in told.stderr
    assert not [*tmp_path.iterdir()]
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    assert run(one_file, link, "--version").returncode == 3


def test_a_damaged_file_says_so(one_file: Path, tmp_path: Path) -> None:
    """Wherever behind the launcher a bit is another: much of a deflate stream can be read with a wrong byte in it, only its sum tells."""
    whole = one_file.read_bytes()
    contents_at, contents_size, list_at, list_size, *_ = struct.unpack("<5Q", whole[-112:-72])
    assert contents_at + contents_size == list_at
    assert list_at + list_size == len(whole) - 112
    spoiled = tmp_path / "spoiled"
    (tmp_path / "cache").mkdir()
    places = [contents_at, contents_at + contents_size // 2, list_at - 1]  # the last is of the sum itself
    places += [list_at + list_size // 2] + [len(whole) - 112 + 8 * field for field in range(5)]
    for place in places:
        data = bytearray(whole)
        data[place] ^= 0x10
        spoiled.write_bytes(data)
        spoiled.chmod(0o755)
        told = run(spoiled, tmp_path / "cache", "--version")
        assert (told.returncode, told.stdout) == (5, ""), place
        assert "compare it with SHA256SUMS" in told.stderr
        assert not [*(tmp_path / "cache").iterdir()]
    spoiled.write_bytes(whole[:-100])
    told = run(spoiled, tmp_path / "cache", "--version")
    assert (told.returncode, told.stdout) == (5, "")
    assert "this file is not whole: compare it with SHA256SUMS" in told.stderr


# --- the tree as an archive -----------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root directory")
def test_the_tree_runs_from_a_read_only_root_without_a_cache(release: Path, tmp_path: Path) -> None:
    """Nothing in the file system can be written but the directory of the result; programs start from the tree only."""
    (archive,) = release.glob("snaprebuild-*-linux-*.tar.gz")
    root = tmp_path / "root"
    for folder in ("opt", "out", "logs", "dev", "usr/bin"):
        (root / folder).mkdir(parents=True)
    subprocess.run(["tar", "--extract", "--file", archive, "--directory", root / "opt"], check=True)
    shutil.copytree(FIXTURES / FIXTURE / "logs", root / "logs", dirs_exist_ok=True)
    (root / "usr/bin/snaprebuild").symlink_to(f"/opt/{archive.name.removesuffix('.tar.gz')}/bin/snaprebuild")
    begin = f"env -i {CHROOT} {root} /usr/bin/snaprebuild"
    script = f"""
        mount --bind {root} {root} && mount -o remount,bind,ro {root} || exit 9
        mount -t tmpfs -o noexec tmpfs {root}/out || exit 9
        ! touch {root}/opt/here 2> /dev/null || exit 9
        {begin} --version || exit 9
        {begin} rebuild /logs --out /out/made --boundaries all --output json --receipt /out/receipt || exit 9
        cp -r {root}/out/made {tmp_path}/made
    """
    command = ["unshare", "--mount", "sh", "-c", script]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("snaprebuild 0.1.0\n")
    assert_as_kafka_says(tmp_path / "made")


def test_the_tree_is_what_the_one_file_unpacks(release: Path, one_file: Path, cache: Path) -> None:
    """Owner, times and modes are those of no machine and of no user."""
    assert run(one_file, cache, "--version").returncode == 0
    tree = unpacked(cache)
    with tarfile.open(f"{one_file}.tar.gz") as archive:
        entries = archive.getmembers()
        data = {entry.name.partition("/")[2]: archive.extractfile(entry).read() for entry in entries if entry.isfile()}  # type: ignore[union-attr]
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert {(entry.uid, entry.gid, entry.uname, entry.gname, entry.mtime) for entry in entries} == {(0, 0, "", "", EPOCH)}
    assert {entry.mode for entry in entries if entry.isfile()} == {0o444, 0o555}
    for name in ("LICENSE", "THIRD-PARTY-NOTICES.txt"):
        assert data.pop(name) == (release / name).read_bytes()
    assert data == {path.relative_to(tree).as_posix(): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


# --- what goes with it ----------------------------------------------------------------------------------------------------------


def test_the_sums(release: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=release, check=True)
    named = {line.split("  ")[1] for line in (release / "SHA256SUMS").read_text().splitlines()}
    assert named | {"SHA256SUMS"} == {path.relative_to(release).as_posix() for path in release.rglob("*") if path.is_file()}


def test_a_signature_is_of_these_sums_and_of_no_others(release: Path, tmp_path: Path) -> None:
    """The commands of the page, with a key that is thrown away."""
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text()
    verify = next(line for line in re.findall(r"^\$ (.*)$", page, re.MULTILINE) if line.startswith("ssh-keygen -Y verify"))
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    (tmp_path / "allowed_signers").write_text(f"releases@snaprebuild {key.with_suffix('.pub').read_text()}")
    sums = tmp_path / "SHA256SUMS"
    shutil.copy(release / sums.name, sums)
    sign(sums, key)

    def verified() -> tuple[int, str]:
        done = subprocess.run(["sh", "-c", verify], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = verified()
    assert (code, said.startswith('Good "file" signature for releases@snaprebuild')) == (0, True), said
    whole = sums.read_bytes()
    for place in (0, len(whole) // 2, len(whole) - 2):
        sums.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert verified()[0] != 0, place
    sums.write_bytes(whole)
    (tmp_path / "allowed_signers").write_text("")
    assert verified()[0] != 0, "the key is nobody's"


def test_the_provenance_names_each_file_and_the_commit(release: Path) -> None:
    (path,) = release.glob("*.provenance.json")
    statement = json.loads(path.read_text())
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
    sums = dict(reversed(line.split("  ")) for line in (release / "SHA256SUMS").read_text().splitlines())
    assert named == {name: digest for name, digest in sums.items() if name != path.name}
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if head.returncode:
        pytest.skip("not a git checkout")
    (source,) = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": head.stdout.strip()}


def test_the_bill_names_what_is_inside(release: Path, one_file: Path, cache: Path) -> None:
    text = Path(f"{one_file}.cdx.json").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    digest = hashlib.sha256(one_file.read_bytes()).hexdigest()
    assert bill["metadata"]["component"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    listed = {component["name"].lower(): component for component in bill["components"]}
    assert run(one_file, cache, "--version").returncode == 0
    tree = unpacked(cache)
    distributions = {re.match(r"(.+?)-\d", path.name)[1] for path in tree.rglob("*.dist-info")}  # type: ignore[index]
    assert {"snaprebuild", "boto3", "numpy"} <= distributions
    assert not {name for name in distributions if name.lower().replace("_", "-") not in listed}
    assert not distributions & {"pyspark", "py4j", "pandas", "pyarrow", "pip"}
    hashes = {inner["name"]: inner["hashes"][0]["content"] for each in listed.values() for inner in each.get("components", ())}
    natives = {
        path.relative_to(tree).as_posix(): path
        for path in tree.rglob("*")
        if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"
    }
    told = {name for name in natives if "/lib-dynload/" not in name}
    assert len(told) > 25
    assert hashes == {name: hashlib.sha256(natives[name].read_bytes()).hexdigest() for name in told}
    notices = (release / "THIRD-PARTY-NOTICES.txt").read_text()
    for component in listed.values():
        assert component["licenses"]
        assert f"\n{component['name']} {component['version']}\n=" in notices
    for words in ("PYTHON SOFTWARE FOUNDATION LICENSE", "Jean-loup Gailly", "OpenSSL"):
        assert words in notices


def test_the_page_of_the_manual(release: Path) -> None:
    page = release / "snaprebuild.1"
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run([groff, "-ww", "-z", "-man", "-Tutf8", page], capture_output=True, text=True, check=True)
        assert done.stderr == ""
    text = page.read_text()
    assert text.startswith('.TH SNAPREBUILD 1 2023-11-14 "snaprebuild ')
    headings = re.findall(r"^\.S[HS] (.+)$", text, re.MULTILINE)
    assert headings[:5] == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "VERBS"]
    found = re.findall(r'^\.SS "(.+)"\n((?:(?!\.S[HS] ).*\n)*)', text, re.MULTILINE)
    parts = {words.replace("\\-", "-"): part for words, part in found}
    assert list(parts) == [*all_verbs()]
    for words, command in all_verbs().items():
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert parameter.opts[0].replace("-", "\\-") in parts[words], (words, parameter.opts)
    known = {"B", "I", "PP", "SH", "SS", "TH", "TP", "fi", "nf"}
    assert set(re.findall(r"^\.(\w*)", text, re.MULTILINE)) == known
    assert text.isascii()


@pytest.fixture
def completing(one_file: Path, cache: Path, tmp_path: Path) -> Callable[..., str]:
    """Runs a shell where the command is on the PATH, next to a directory ``logs``. Returns what it prints."""
    (tmp_path / "snaprebuild").symlink_to(one_file)
    (tmp_path / "logs").mkdir()
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SNAPREBUILD_CACHE_DIR": str(cache), "HOME": str(tmp_path)}

    def printed(*command: str) -> str:
        done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
        assert done.stderr == ""
        return done.stdout

    return printed


def test_completion_in_a_real_bash(release: Path, completing: Callable[..., str]) -> None:
    def completed(*words: str) -> set[str]:
        quoted = " ".join(f"'{word}'" for word in words)
        script = f"""
            source {release}/completions/snaprebuild.bash
            COMP_WORDS=(snaprebuild {quoted}); COMP_CWORD={len(words)}
            compopt() {{ echo "$@"; }}
            _snaprebuild_completion snaprebuild
            printf '%s\\n' "${{COMPREPLY[@]}}"
        """
        return set(completing("bash", "--norc", "-c", script).split())

    assert completed("ti") == {"tier"}
    assert completed("tier", "") == {"inventory", "audit", "repair", "upload"}
    assert "--output" in completed("scan", "--ou")
    assert completed("scan", "--output", "js") == {"json"}
    assert completed("scan", "log") == {"-o", "default"}, "bash fills in the path"


def shell_or_skip(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"NOT RUN: completion in a real {name} (marker shells): {name} is not installed")
    return found


@pytest.mark.shells
def test_completion_in_a_real_fish(release: Path, completing: Callable[..., str]) -> None:
    """`complete -C` is what fish itself does at the Tab key."""
    fish = shell_or_skip("fish")

    def completed(typed: str) -> set[str]:
        script = f'source {release}/completions/snaprebuild.fish; complete -C "{typed}"'
        return {line.split("\t")[0] for line in completing(fish, "--no-config", "-c", script).splitlines()}

    assert completed("snaprebuild ti") == {"tier"}
    assert completed("snaprebuild tier ") == {"inventory", "audit", "repair", "upload"}
    assert "--output" in completed("snaprebuild scan --ou")
    assert completed("snaprebuild scan --output js") == {"json"}
    assert completed("snaprebuild scan log") == {"logs/"}


ZSH_SET_UP = """
PS1=''; unsetopt zle_bracketed_paste; fpath=({completions} $fpath); autoload -Uz compinit; compinit -D -u
zstyle ':completion:all-matches::::' completer _all_matches _complete; zstyle ':completion:all-matches:*' insert true
zle -C all-matches complete-word _generic; bindkey '^A' all-matches
tell() {{ print -r -- "$BUFFER" >> {told}; BUFFER=''; zle reset-prompt }}; zle -N tell; bindkey '^E' tell
: > {told}
"""
"""^A puts all that Tab has found into the line, ^E writes the line to a file and empties it."""


@pytest.mark.shells
def test_completion_in_a_real_zsh(release: Path, one_file: Path, cache: Path, tmp_path: Path) -> None:
    """Installed as the page says, on a terminal, with the Tab key."""
    zsh = shell_or_skip("zsh")
    (tmp_path / "snaprebuild").symlink_to(one_file)
    (tmp_path / "logs").mkdir()
    told = tmp_path / "told"
    words = ("ti\t", "tier \t\x01", "scan --outp\t", "scan --output js\t", "scan log\t")
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SNAPREBUILD_CACHE_DIR": str(cache), "HOME": str(tmp_path), "TERM": "vt100"}
    ours, theirs = pty.openpty()
    command, streams = [zsh, "-f", "-i"], {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    shell = subprocess.Popen(command, **streams, env=variables, cwd=tmp_path, start_new_session=True)
    os.close(theirs)
    screen = bytearray()

    def typed_until(text: str, is_done: Callable[[], bool]) -> None:
        os.write(ours, text.encode())
        end = time.monotonic() + SECONDS_MAX
        while not is_done():
            assert time.monotonic() < end, screen.decode(errors="replace")
            if select.select([ours], [], [], 0.05)[0]:
                screen.extend(os.read(ours, 4096))

    try:
        typed_until(ZSH_SET_UP.format(completions=release / "completions", told=told).strip() + "\n", told.exists)
        for number, line in enumerate(words):
            typed_until(f"snaprebuild {line}\x05", lambda wanted=number + 1: told.read_text().count("\n") == wanted)  # type: ignore[misc]
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    one, all_of_tier, option, value, path = told.read_text().splitlines()
    assert one == "snaprebuild tier "
    assert set(all_of_tier.split()) == {"snaprebuild", "tier", "inventory", "audit", "repair", "upload"}
    assert (option, value, path) == ("snaprebuild scan --output ", "snaprebuild scan --output json ", "snaprebuild scan logs/")


# --- two builds, and a machine without a network ----------------------------------------------------------------------------------


def test_wheel_and_sdist_are_the_same_from_another_directory(release: Path, tmp_path: Path) -> None:
    """Their bytes, from files of another age in a directory of another name; scripts/reproduce-release compares all of a release."""
    copy = tmp_path / "another-name"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.split("\0"):
        if name and not name.startswith(("fixtures/", "tests/")) and (REPOSITORY / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, copy / name)
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH)}
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", tmp_path / "dist", copy], check=True, env=environment, capture_output=True
    )
    made = {path.name: path.read_bytes() for path in (tmp_path / "dist").iterdir()}
    assert sorted(Path(name).suffix for name in made) == [".gz", ".whl"]
    assert made == {name: (release / name).read_bytes() for name in made}
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    moved = REPOSITORY / "snaprebuild" / "spark" / "found_by_spark"
    for package in ("formats", "snaprebuild"):
        paths = {path for path in (REPOSITORY / package).rglob("*.py") if path.parent != moved}
        assert {path.relative_to(REPOSITORY).as_posix() for path in paths} <= names
        assert f"{package}/py.typed" in names
    found_by_spark = {"pyspark_kafka_batch_headers.py", "pyspark_kafka_producer_snapshot.py"}
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"formats", "snaprebuild", *found_by_spark}
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as opened:
        inside = {name.split("/")[1] for name in opened.getnames()}
    wanted = {"snaprebuild", "formats", "docs", "README.md", "LICENSE", "CHANGELOG.md", "PKG-INFO", "pyproject.toml"}
    assert inside - {".gitignore"} == wanted


@pytest.mark.root
@pytest.mark.night  # pip download needs the network before the gap
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take the network away")
def test_the_way_over_an_air_gap_as_it_is_written(release: Path, tmp_path: Path) -> None:
    """The commands of docs/guides/install.md; behind the gap there is no network device but a loopback that is down."""
    page = (REPOSITORY / "docs" / "guides" / "install.md").read_text().partition("## Without a network")[2].partition("\n## ")[0]
    blocks = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    before, behind = ("\n".join(re.findall(r"^\$ (.*)", block, re.MULTILINE)) for block in blocks)
    (wheel,) = release.glob("*.whl")
    (tmp_path / "usb").mkdir()
    shutil.copy(wheel, tmp_path / "usb")
    prefix = tmp_path / "opt"
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_STATE_HOME": str(tmp_path)}

    def typed(commands: str, *within: str) -> None:
        assert "/opt/snaprebuild" in commands or "pip download" in commands
        script = "set -e\n" + commands.replace("/opt/snaprebuild", str(prefix))
        done = subprocess.run(
            [*within, "bash", "-c", script],
            cwd=tmp_path / "usb",
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=900,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    typed(before)
    (tmp_path / "usb" / wheel.name).unlink()
    there = f"/opt/snaprebuild/bin/snaprebuild rebuild {FIXTURES / FIXTURE} --out {tmp_path}/out --boundaries all"
    typed(f"! (exec 3<>/dev/tcp/1.1.1.1/53) 2>/dev/null\n{behind}\n{there}", "unshare", "--net")
    assert_as_kafka_says(tmp_path / "out")
