"""The files of ``eunomia example``: a small trace, the same jobs in another format, and a cluster of two GPU types.

The data are invented; ``tests/make_example.py`` generates the files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from eunomia.errors import InputError, InputErrors
from eunomia.words import shown

EXAMPLE_FILES: Final[Mapping[str, str]] = {
    "example.csv": "72 jobs of 60 apps of four users, in Eunomia's format; times on V100",
    "accounting.csv": "the same jobs as another system exports them: other columns, calendar times, minutes",
    "lab.toml": "a cluster of 2 machines with 8 V100 and 4 machines with 4 K80",
}
"""The description of each file, by file name."""


def example_text(name: str) -> str:
    """Return the text of a file of the example.

    Args:
        name: one of ``EXAMPLE_FILES``.
    """
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def write_example(folder: str | Path = ".", *, overwrite: bool = False) -> list[Path]:
    """Write the example files into a folder, which is created if it is missing, and return their paths.

    Args:
        folder: where the files go; by default the current folder.
        overwrite: whether a file of the same name and another content is replaced.

    Raises:
        InputErrors: a file of the same name has another content; nothing is written then.
        InputError: the folder is a file, or cannot be written.
    """
    where = Path(folder)
    if where.exists() and not where.is_dir():
        raise InputError("the folder of the example must be a folder", value=shown(str(folder)))
    texts = {where / name: example_text(name) for name in EXAMPLE_FILES}
    rule = "a file of the example must not replace another one, unless --overwrite is given"
    others = [path for path, text in texts.items() if path.exists() and not _holds(path, text)]
    if others and not overwrite:
        raise InputErrors([InputError(rule, value=shown(str(path))) for path in others])
    try:
        where.mkdir(parents=True, exist_ok=True)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        rule = "the folder of the example must be writable"
        raise InputError(rule, value=error.strerror or str(error), place=str(folder)) from error
    return list(texts)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False
