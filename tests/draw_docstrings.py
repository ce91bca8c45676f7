"""Draws docstrings of the product at random, to be read against the rules of wording.

`python tests/draw_docstrings.py --seed 1` prints 60; the same seed draws the same ones from the same sources.
"""

import argparse
import ast
import random
from collections.abc import Iterator

import house

DRAWN = 60


def docstrings() -> list[tuple[str, str]]:
    """Place and text of every docstring: of modules, classes, functions, and of attributes (below their line)."""
    return [found for path, tree in house.trees().items() for found in _of_module(str(path), tree)]


def _of_module(path: str, tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield f"{path}:{statement.lineno}", text


def main() -> None:
    """Print the docstrings drawn with the seed of the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--count", type=int, default=DRAWN)
    given = options.parse_args()
    every = docstrings()
    print(f"seed {given.seed}: {given.count} of {len(every)} docstrings")
    for place, text in sorted(random.Random(given.seed).sample(every, given.count)):
        print(f"\n{place}\n    {text.strip()}")


if __name__ == "__main__":
    main()
