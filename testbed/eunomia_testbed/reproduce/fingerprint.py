"""The fingerprint (a hash) of the code that a paper's simulations run; a change of it may change their results.

It excludes docstrings and comments, and the code that only reads finished results or runs live: claims, measures,
verdicts, tables, commands, reports and the live system.
"""

import ast
import hashlib
import importlib.util
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from eunomia_testbed.reproduce.paper import Paper

SIMULATING: Final = (
    "eunomia",
    "eunomia_plugins",
    "eunomia_solvers",
    "eunomia_hpo_adapters",
    "eunomia_appmaster.app",
    "eunomia_appmaster.master.division",
    "eunomia_appmaster.master.bidding",
    "eunomia_appmaster.tuner",
    "eunomia_testbed.audit",
    "eunomia_testbed.calls",
    "eunomia_testbed.evidence",
    "eunomia_testbed.example",
    "eunomia_testbed.generators",
    "eunomia_testbed.metrics",
    "eunomia_testbed.performance",
    "eunomia_testbed.reproduce.recipes",
    "eunomia_testbed.results",
    "eunomia_testbed.run_log",
    "eunomia_testbed.simulator",
    "eunomia_testbed.spec",
    "eunomia_testbed.traces",
    "eunomia_testbed.workload",
)
"""Packages and modules that a simulation imports; a test compares them with the imports of an actual run."""

JUDGING: Final = ("paper.py", "claims.toml")
"""Files in a paper's folder that the fingerprint excludes, since they only read finished results."""

_SUFFIXES: Final = (".py", ".toml")
_DIGITS: Final = 12


def code_of(paper: Paper[Any, Any, Any]) -> str:
    """Return the fingerprint of the code that runs a paper's cells: twelve hexadecimal digits."""
    module: str = paper.run.__module__
    return _code_of(module.rpartition(".")[0] or module)


@cache
def _code_of(own: str) -> str:
    digest = hashlib.sha256()
    for name in SIMULATING:
        digest.update(_digest(name))
    for path in _files(own):
        if path.name not in JUDGING:
            _add(digest, path.name, path)
    return digest.hexdigest()[:_DIGITS]


@cache
def _digest(name: str) -> bytes:
    digest = hashlib.sha256(name.encode())
    roots = _roots(name)
    for path in _files(name):
        root = next((root for root in roots if path.is_relative_to(root)), path.parent)
        _add(digest, str(path.relative_to(root)), path)
    return digest.digest()


def _add(digest: Any, name: str, path: Path) -> None:
    digest.update(name.encode())
    digest.update(_without_docstrings(path.read_text(encoding="utf-8")) if path.suffix == ".py" else path.read_bytes())


def _without_docstrings(source: str) -> bytes:
    """Return a module's code as text, without comments, docstrings, layout and line numbers."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [each for each in node.body if not _is_docstring(each)]
    return ast.dump(tree).encode()


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _roots(name: str) -> list[Path]:
    spec = importlib.util.find_spec(name)
    return [Path(root) for root in (spec and spec.submodule_search_locations) or ()]


def _files(name: str) -> Iterator[Path]:
    """Yield the source files of a package, sorted, or the file of a module; yield none if it is not installed."""
    if roots := _roots(name):
        for root in roots:
            yield from sorted(path for path in root.rglob("*.*") if path.suffix in _SUFFIXES)
    elif (spec := importlib.util.find_spec(name)) and spec.origin:
        yield Path(spec.origin)
