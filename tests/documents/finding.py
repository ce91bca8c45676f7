"""Finds the fenced blocks of the documents, and the commands and shown output of their console blocks."""

import re
import shlex
import textwrap
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CONSOLE: Final = "console"
LANGUAGES: Final = frozenset({CONSOLE, "ini", "python", "python service", "python sketch", "text", "toml", "yaml", ""})
"""Languages of fences: ``console`` holds commands behind ``$``; ``text`` and none are output and drawings."""
FENCE: Final = re.compile(r"^( *)```([^\n`]*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_OPERATORS: Final = frozenset({"|", "&&", ";"})


class Block(NamedTuple):
    """A fenced block of a page, without its indentation."""

    page: Path
    line: int
    language: str
    text: str


class Command(NamedTuple):
    """A command of a console block."""

    place: str
    """Page and line."""
    text: str
    """On one line, as a shell takes it, without the comment at its end."""
    output: tuple[str, ...]
    """The lines that the page shows as its output."""


def blocks(page: Path, *languages: str) -> list[Block]:
    """The fenced blocks of a page; of these languages alone, if any are given."""
    text = page.read_text(encoding="utf-8")
    found = [
        Block(page, text.count("\n", 0, match.start()) + 1, match[2].strip(), textwrap.dedent(match[3]))
        for match in FENCE.finditer(text)
    ]
    return [block for block in found if not languages or block.language in languages]


def commands(page: Path) -> list[Command]:
    """The commands of a page's console blocks, in order."""
    return [command for block in blocks(page, CONSOLE) for command in commands_of(block)]


def commands_of(block: Block) -> list[Command]:
    """The commands of a console block: lines behind ``$``, with those that ``\\`` continues."""
    name = block.page.relative_to(ROOT) if block.page.is_relative_to(ROOT) else block.page.name
    found: list[Command] = []
    lines = iter(enumerate(block.text.splitlines(), start=block.line + 1))
    for number, line in lines:
        if line.startswith("$ "):
            parts = [line[2:]]
            while parts[-1].endswith("\\"):
                parts[-1] = parts[-1][:-1]
                parts.append(next(lines)[1])
            found.append(Command(f"{name}:{number}", _plain(" ".join(parts)), ()))
        elif found:
            found[-1] = found[-1]._replace(output=(*found[-1].output, line))
        else:
            raise ValueError(f"a console block must begin with a command, but got {line!r} ({name}:{number})")
    return found


def steps(text: str) -> list[list[str]]:
    """The words of each command of a line, between ``|`` and ``&&``."""
    words = shlex.shlex(text, posix=True, punctuation_chars="|&;")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if word in _OPERATORS:
            found.append([])
        else:
            found[-1].append(word)
    return found


def _plain(text: str) -> str:
    """Collapse blanks outside of quotes, and drop a comment."""
    text = re.sub(r"\s+#\s.*$", "", text)
    return re.sub(r"\s+", " ", text).strip()
