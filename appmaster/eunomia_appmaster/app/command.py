"""A job's command: split into words once, without a shell; its placeholders are filled in for each trial."""

import os
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import value
from eunomia_appmaster.app.space import Parameters, arguments, text_of

PLACEHOLDERS = ("args", "seed", "max_iterations", "log_dir", "checkpoint_dir")
"""Placeholders in addition to the parameters of the space; ``{{lr}}`` is a literal ``{lr}``."""
_BRACES = re.compile(r"\{(\{[A-Za-z_][\w-]*\})\}|\{([A-Za-z_][\w-]*)\}")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
NODES_OWN = "python"
"""Program name that each launcher replaces by its own Python interpreter, unless the job's environment names one."""
_PYTHON_FLAGS_WITH_VALUE = ("-W", "-X")


@value
class Filling:
    """The values of the placeholders of one trial."""

    parameters: Parameters
    seed: int
    max_iterations: int | None
    log_dir: Path
    checkpoint_dir: Path


@value
class Command:
    """A job's command, split into words; ``fill`` builds the argument list of a trial."""

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, parameters: Sequence[str], place: str | None = None) -> Self:
        """Split a command line as a shell does, but without expansion, pipes and redirection.

        Raises:
            InputErrors: the text has open quotes, no words, an unknown placeholder, or ``{args}`` inside a word.
        """
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise InputErrors(
                [InputError("command must close its quotes", value=f'"{text}" ({error})', place=place)]
            ) from error
        errors = [] if words else [InputError("command must name a program", value=f'"{text}"', place=place)]
        for word in words:
            errors += _check_word(word, parameters, place)
        if errors:
            raise InputErrors(errors)
        return cls(words=words)

    def check(self, folder: Path, *, env: Mapping[str, str] | None = None, place: str | None = None) -> None:
        """Check that a command can start.

        Args:
            folder: the working folder of the job.
            env: the submitter's ``PATH`` and ``VIRTUAL_ENV``; None: this process's.
            place: where errors locate the command, such as a key of the app file.

        Raises:
            InputError: the program or the Python script of the command does not exist.
        """
        program = self.words[0]
        if _BRACES.search(program):
            return
        found = shutil.which(_in(folder, program), path=None if env is None else env.get("PATH"))
        if not _PYTHON.fullmatch(program) and found is None:
            raise InputError("command must start a program that exists", value=f'"{program}"', place=place)
        script = self.script()
        if script is not None and not _BRACES.search(script) and not os.path.isfile(folder / script):  # noqa: PTH113
            rule = f"command must name a script that exists in {folder}"
            raise InputError(rule, value=f'"{script}"', place=place)

    def names_any(self, parameters: Iterable[str]) -> bool:
        """Return whether the command has a placeholder of one of the parameters, or ``{args}``."""
        wanted = {"args", *parameters}
        return any(match[2] in wanted for word in self.words for match in _BRACES.finditer(word))

    def script(self) -> str | None:
        """Return the script of ``python SCRIPT``; None for ``python -m``, ``python -c`` and other programs."""
        if not _PYTHON.fullmatch(Path(self.words[0]).name):
            return None
        words = iter(self.words[1:])
        for word in words:
            if word in ("-m", "-c") or word.startswith(("-m", "-c")):
                return None
            if word in _PYTHON_FLAGS_WITH_VALUE:
                next(words, None)
            elif not word.startswith("-"):
                return word
        return None

    def fill(self, filling: Filling, *, virtual_env: str | None = None) -> list[str]:
        """Return the argument list of a trial.

        Args:
            filling: values of the placeholders.
            virtual_env: the submitter's virtual environment, whose interpreter replaces ``python``; None: each node's
                own interpreter replaces it.
        """
        known = {name: text_of(parameter) for name, parameter in filling.parameters.items()} | {
            "seed": str(filling.seed),
            "max_iterations": "" if filling.max_iterations is None else str(filling.max_iterations),
            "log_dir": str(filling.log_dir),
            "checkpoint_dir": str(filling.checkpoint_dir),
        }
        words: list[str] = []
        for word in self.words:
            if word == "{args}":
                words += arguments(filling.parameters)
            else:
                words.append(_BRACES.sub(lambda match: match[1] or known[match[2]], word))
        if _PYTHON.fullmatch(words[0]):
            words[0] = interpreter(virtual_env)
        return words


def interpreter(virtual_env: str | None) -> str:
    """Return the path of the submitter's interpreter, else ``python``, which each node replaces by its own.

    An interpreter that this account cannot access, such as one in a private home folder, counts as missing.
    """
    theirs = str(Path(virtual_env) / "bin" / "python") if virtual_env else ""
    return theirs if theirs and os.path.exists(theirs) else NODES_OWN  # noqa: PTH110 - False without access


def _in(folder: Path, program: str) -> str:
    return str(folder / program) if "/" in program else program


def _check_word(word: str, parameters: Sequence[str], place: str | None) -> list[InputError]:
    errors = []
    known = (*PLACEHOLDERS, *parameters)
    for match in _BRACES.finditer(word):
        name = match[2]
        if name == "args" and word != "{args}":
            errors.append(InputError("{args} must stand alone in command", value=f'"{word}"', place=place))
        elif name is not None and name not in known:
            close = get_close_matches(name, known, n=1)
            meant = f'; did you mean "{{{close[0]}}}"?' if close else ""
            rule = "command must use known placeholders: " + " ".join(f"{{{word}}}" for word in known)
            errors.append(InputError(rule, value=f'"{{{name}}}"{meant}', place=place))
    return errors
