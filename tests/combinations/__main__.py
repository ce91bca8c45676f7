"""Writes the table of combinations as pages: ``PYTHONPATH=tests python -m combinations docs/reference``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from combinations.cells import Combinations
from combinations.pages import pages
from eunomia.platform.registry import Registry


def main(arguments: Sequence[str]) -> None:
    """Write the pages into the named folder, or to standard output."""
    made = pages(Combinations(Registry.find(installed=False), processes=2))
    if not arguments:
        sys.stdout.write("\n".join(made.values()))
        return
    for path, text in made.items():
        page = Path(arguments[0], path)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
