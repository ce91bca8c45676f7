"""Files of others that simulations need: a run that lacks one is refused before anything is printed or simulated."""

from collections.abc import Iterable
from pathlib import Path

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
