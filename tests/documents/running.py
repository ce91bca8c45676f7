"""Runs commands of the documents in a folder of their own, and compares the output that a page shows with theirs.

A command of ``eunomia`` runs in the process of the test, unless it names a plugin's file or stands in a pipe. Files
that a page assumes are made of the page's own blocks and of ``docs/examples``.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from documents.finding import ROOT, Command, blocks, steps
from eunomia.cli import run
from eunomia.journal.journal import Journal

BAD_INPUT: Final = 2
"""The exit code of a command whose shown output begins with ``error:``."""
EXAMPLES: Final = ROOT / "docs" / "examples"


def prepare(page: Path, folder: Path) -> None:
    """Put the files into a folder that a page's commands find in theirs: the examples', and those that it writes."""
    shutil.copytree(EXAMPLES, folder / "docs" / "examples")
    for example in ("digits", "adapting", "eunomia_lottery"):
        shutil.copytree(EXAMPLES / example, folder, dirs_exist_ok=True)
    made = MADE.get(str(page.relative_to(ROOT)))
    if made is not None:
        made(page, folder)


def _first(language: str, name: str) -> Callable[[Path, Path], None]:
    """Writes the first block of a language under a name."""

    def write(page: Path, folder: Path) -> None:
        (folder / name).write_text(blocks(page, language)[0].text, encoding="utf-8")

    return write


def _journal(page: Path, folder: Path) -> None:
    Journal.open(folder / "journal.sqlite", durable=False).close()
    (folder / "backup").mkdir()


MADE: Final[Mapping[str, Callable[[Path, Path], None]]] = {
    "docs/how-to/add-a-machine.md": _first("toml", "wide.toml"),
    "docs/how-to/back-up.md": _journal,
    "docs/how-to/bring-your-own-trace.md": _first("python", "map.py"),
    "docs/how-to/write-a-metric.md": _first("python", "tail.py"),
    "docs/tutorial/first-policy.md": _first("python", "eunomia_lottery.py"),
    "docs/tutorial/first-search.md": _first("toml", "digits.toml"),
}
"""By page, what makes the files that it says to write or takes for granted."""


def run_command(command: Command, capture: pytest.CaptureFixture[str]) -> None:
    """Run a command in the current folder; its exit code and the shown output must be as the page says."""
    words = steps(command.text)
    capture.readouterr()
    if len(words) == 1 and words[0][0] == "eunomia" and "--plugin-path" not in words[0]:
        code = run(words[0][1:])
        said = "".join(capture.readouterr())
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["bash", "-o", "pipefail", "-c", command.text]
        ended = subprocess.run(shell, env=os.environ | {"PATH": path}, capture_output=True, text=True)
        code, said = ended.returncode, ended.stderr + ended.stdout
    refused = any(line.startswith("error:") for line in command.output)
    assert code == (BAD_INPUT if refused else 0), f"{command.place}: exit code {code}\n{said}"
    missing = not_said(command.output, said)
    assert not missing, f"{command.place}: the page shows {missing[0]!r}, which is not in the output\n{said}"


def not_said(shown: tuple[str, ...], said: str) -> list[str]:
    """The shown lines that no line of the output is, whatever its blanks; ``...`` stands for anything."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    whole = " ".join(lines)
    missing = []
    for line in shown:
        plain = " ".join(line.split())
        wanted = re.escape(plain).replace(r"\.\.\.", ".*")
        if plain not in ("", "...") and plain not in whole and not any(re.fullmatch(wanted, each) for each in lines):
            missing.append(line)
    return missing
