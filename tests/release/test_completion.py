"""The page of the manual, and completion in real shells, as a release has them."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from command import SECONDS_MAX

from snaprebuild.cli.main import verbs

pytestmark = pytest.mark.release

PURPOSE = "checks and rebuilds the producer snapshots of Apache Kafka partitions, outside of the broker"

TIER = {"inventory", "metadata", "audit", "repair", "upload"}
"""Commands of the group."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def test_the_page_of_the_manual(release: Path) -> None:
    page = release / "snaprebuild.1"
    groff = shutil.which("groff")
    if groff is not None:
        done = subprocess.run([groff, "-ww", "-z", "-man", "-Tutf8", page], capture_output=True, text=True, check=True)
        assert done.stderr == ""
    lexgrog = shutil.which("lexgrog")  # what man -f and apropos are made from
    if lexgrog is not None:
        done = subprocess.run([lexgrog, page], capture_output=True, text=True, check=True)
        assert done.stdout == f'{page}: "snaprebuild - {PURPOSE}"\n'
    text = page.read_text()
    assert f".SH NAME\nsnaprebuild \\- {PURPOSE}\n.SH SYNOPSIS\n" in text
    assert text.startswith('.TH SNAPREBUILD 1 2023-11-14 "snaprebuild ')
    headings = re.findall(r"^\.S[HS] (.+)$", text, re.MULTILINE)
    assert headings[:5] == ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "VERBS"]
    found = re.findall(r'^\.SS "(.+)"\n((?:(?!\.S[HS] ).*\n)*)', text, re.MULTILINE)
    parts = {words.replace("\\-", "-"): part for words, part in found}
    assert list(parts) == [*verbs()]
    for words, command in verbs().items():
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
    assert completed("tier", "") == TIER
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
    assert completed("snaprebuild tier ") == TIER
    assert "--output" in completed("snaprebuild scan --ou")
    assert completed("snaprebuild scan --output js") == {"json"}
    assert completed("snaprebuild scan log") == {"logs/"}


ZSH_SET_UP = """
PS1=''; unsetopt zle_bracketed_paste; fpath=({completions} $fpath); autoload -Uz compinit; compinit -D -u
zstyle ':completion:all-matches::::' completer _all_matches _complete; zstyle ':completion:all-matches:*' insert true
zle -C all-matches complete-word _generic; bindkey '^A' all-matches
tell() {{ print -r -- "$BUFFER" >> {reported}; BUFFER=''; zle reset-prompt }}; zle -N tell; bindkey '^E' tell
: > {reported}
"""
"""^A puts all that Tab has found into the line, ^E writes the line to a file and empties it."""


@pytest.mark.shells
def test_completion_in_a_real_zsh(release: Path, one_file: Path, cache: Path, tmp_path: Path) -> None:
    """Installed as the page says, on a terminal, with the Tab key."""
    zsh = shell_or_skip("zsh")
    (tmp_path / "snaprebuild").symlink_to(one_file)
    (tmp_path / "logs").mkdir()
    reported = tmp_path / "reported"
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
        typed_until(ZSH_SET_UP.format(completions=release / "completions", reported=reported).strip() + "\n", reported.exists)
        for number, line in enumerate(words):
            typed_until(f"snaprebuild {line}\x05", lambda wanted=number + 1: reported.read_text().count("\n") == wanted)  # type: ignore[misc]
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
    one, all_of_tier, option, value, path = reported.read_text().splitlines()
    assert one == "snaprebuild tier "
    assert set(all_of_tier.split()) == {"snaprebuild", "tier", *TIER}
    assert (option, value, path) == ("snaprebuild scan --output ", "snaprebuild scan --output json ", "snaprebuild scan logs/")
