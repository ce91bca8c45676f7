"""Draws docstrings of the product and names of tests at random, to be read against the rules of wording.

`python tests/draw_wording.py --seed 1` prints 60 docstrings and 40 names; the same seed draws the same ones from the
same sources.
"""

import argparse
import ast
import random
from collections.abc import Iterator
from pathlib import Path

import house

DOCSTRINGS, NAMES = 60, 40
TESTS = Path(__file__).parent


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


def test_names() -> list[tuple[str, str]]:
    """Place and name of every test, without the prefix, in words."""
    return [
        (f"{path.relative_to(TESTS.parent)}:{node.lineno}", node.name.removeprefix("test_").replace("_", " "))
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    ]


def _show(what: str, every: list[tuple[str, str]], *, seed: int, count: int) -> None:
    print(f"seed {seed}: {count} of {len(every)} {what}")
    for place, text in sorted(random.Random(seed).sample(every, count)):
        print(f"\n{place}\n    {text.strip()}")


def main() -> None:
    """Print what is drawn with the seed of the command line."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, required=True)
    options.add_argument("--docstrings", type=int, default=DOCSTRINGS)
    options.add_argument("--names", type=int, default=NAMES)
    given = options.parse_args()
    _show("docstrings", docstrings(), seed=given.seed, count=given.docstrings)
    print()
    _show("names of tests", test_names(), seed=given.seed, count=given.names)


if __name__ == "__main__":
    main()
