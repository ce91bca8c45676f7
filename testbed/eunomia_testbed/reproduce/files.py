"""Files of others that simulations need.

A run that lacks one, or whose content no simulation can use, is refused before anything is printed or simulated.
"""

from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import value
from eunomia.words import shown


@value
class NeededFile:
    """A file that a simulation reads and that is no part of Eunomia."""

    path: str
    rule: str
    """What it must be, with the way to give it, such as ``trace must be the file of ... (--set trace=FILE)``."""
    folder: str | None = None
    """The folder that the user gives, which must hold the file; None: the user gives the path."""


@value
class Reading:
    """What a simulation makes of such files before it begins: speeds, or its jobs.

    A run makes each once before its first simulation, so that wrong content is refused there.
    """

    read: Callable[..., Any]
    """A function of a module, which raises ``InputError`` for content that no simulation can use."""
    arguments: tuple[Hashable, ...]


def check_files_and_content(given: Iterable[NeededFile | Reading], place: str) -> None:
    """Refuse files that are missing, then files whose content no simulation can use.

    Args:
        given: files, and what simulations make of them first.
        place: what needs the files, for errors.

    Raises:
        InputErrors: all that are missing; if none is, what is wrong in them.
    """
    every = list(given)
    check_files([one for one in every if isinstance(one, NeededFile)], place)
    check_content([one for one in every if isinstance(one, Reading)])


def check_content(readings: Iterable[Reading]) -> None:
    """Refuse files whose content no simulation can use.

    Args:
        readings: each is made once, in order; after a function that fails no later function is called, since that
            would need what could not be read.

    Raises:
        InputErrors: what is wrong, each once.
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
    """Refuse files that are missing.

    Args:
        files: each is looked for once.
        place: what needs them, for errors.

    Raises:
        InputErrors: all that are missing.
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
