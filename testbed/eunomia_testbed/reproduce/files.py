"""Third-party files that simulations need.

A run is refused before anything is printed or simulated if such a file is missing or has unusable content.
"""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import value
from eunomia.words import shown


@value
class NeededFile:
    """A file that a simulation reads and that is not part of Eunomia."""

    path: str
    rule: str
    """The rule that the file must meet, and how to provide it, such as ``trace must be the file of ... (--set
    trace=FILE)``."""
    folder: str | None = None
    """The folder that the user provides and that must contain the file; None: the user provides the file's path."""


@value
class Reading:
    """An input that a simulation reads from such files before it begins: speeds, or its jobs.

    A run makes each reading once before its first simulation, so that invalid content is found early.
    """

    read: Callable[..., Any]
    """A module's function that raises ``InputError`` for content that no simulation can use."""
    arguments: tuple[Hashable, ...]


def check_files_and_content(given: Iterable[NeededFile | Reading], place: str) -> None:
    """Check that all files exist, and then that their content can be used.

    Args:
        given: files, and the readings of them.
        place: what needs the files, for errors.

    Raises:
        InputErrors: all missing files; if none is missing, all errors in their content.
    """
    every = list(given)
    check_files([one for one in every if isinstance(one, NeededFile)], place)
    check_content([one for one in every if isinstance(one, Reading)])


def check_content(readings: Iterable[Reading]) -> None:
    """Check that simulations can use the content of files.

    Args:
        readings: each is made once, in order; if a function fails, later functions are not called, since they need its
            result.

    Raises:
        InputErrors: all errors found, each once.
    """
    by_function: dict[Callable[..., Any], dict[tuple[Hashable, ...], None]] = {}
    for one in readings:
        by_function.setdefault(one.read, {})[one.arguments] = None
    for read, calls in by_function.items():
        wrong: dict[str, InputError] = {}
        for arguments in calls:
            try:
                read(*arguments)
            except InputErrors as several:
                wrong.update((str(error), error) for error in several.errors)
            except InputError as error:
                wrong.setdefault(str(error), error)
        if wrong:
            raise InputErrors([*wrong.values()])


def check_files(files: Iterable[NeededFile], place: str) -> None:
    """Check that all files exist.

    Args:
        files: the files; each is looked up once.
        place: what needs them, for errors.

    Raises:
        InputErrors: all missing files.
    """
    missing: dict[tuple[str, str], list[str]] = {}
    for one in dict.fromkeys(files):
        path = Path(one.path)
        if not path.is_file():
            lacks = missing.setdefault((one.rule, one.path if one.folder is None else one.folder), [])
            lacks += [] if one.folder is None else [path.name]
    errors = []
    for (rule, given), lacks in missing.items():
        without = f" without {', '.join(lacks)}" if lacks else ""
        errors.append(InputError(rule, value=f"{shown(given)}{without}", place=place))
    if errors:
        raise InputErrors(errors)
