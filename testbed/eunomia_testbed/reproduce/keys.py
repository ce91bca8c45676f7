"""Lists the keys of ``eunomia reproduce --set`` by paper, each with its default and meaning."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from typer.core import TyperCommand

from eunomia.errors import InputError, InputErrors
from eunomia.model.shapes import value
from eunomia_testbed.reproduce.paper import LEAST, MEANING
from eunomia_testbed.reproduce.papers import find_paper, paper_names
from eunomia_testbed.spec.settings import keys_of

_WORDS: Final = "eunomia_testbed.reproduce.words"


@value
class GridKey:
    """A key of ``--set`` for one paper."""

    name: str
    default: str
    """Default value as written for ``--set``; empty: none."""
    meaning: str
    """The meaning in one line; empty: the paper states none."""


def grid_keys(grid: type[Any]) -> Iterator[GridKey]:
    """Yield the keys of a paper's grid, in the order of its fields."""
    of = {field.name: field for field in dataclasses.fields(grid)}
    for key, name in keys_of(grid).items():
        default = of[name].default
        text = f"{default:g}s" if name != key else f"{default:g}" if isinstance(default, float) else str(default)
        yield GridKey(name=key, default=text, meaning=of[name].metadata.get(MEANING, ""))


def check_numbers(grid: object) -> None:
    """Check that numbers are not below the least values of their keys.

    Raises:
        InputErrors: some numbers are too small; all are reported.
    """
    of: dict[str, Any] = {field.name: field.metadata.get(LEAST) for field in dataclasses.fields(grid)}  # type: ignore[arg-type]
    errors = []
    for key, name in keys_of(type(grid)).items():
        least, given = of[name], getattr(grid, name)
        if least is not None and not least <= given < math.inf:
            rule = f"{key} must be at least {least:g}" + ("" if given < math.inf else ", and finite")
            errors.append(InputError(rule, value=f"{given:g}", place="--set"))
    if errors:
        raise InputErrors(errors)


def key_lines(papers: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield a heading for each paper, with its keys and their meanings.

    If a paper of an installed package cannot be loaded, its error takes the place of its keys.
    """
    for paper in papers:
        try:
            keys = grid_keys(find_paper(paper).grid)
            lines = [(f"{key.name}={key.default}", key.meaning) for key in keys]
        except Exception as error:
            lines = [("does not load", f"{type(error).__name__}: {error}")]
        yield f"Keys of --set, {paper}", lines


class KeysInHelp(TyperCommand):
    """A command whose ``--help`` ends with the keys of the papers named on the command line, or of all papers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Store the arguments, since ``--help`` is answered before the paper's name is parsed."""
        ctx.meta[_WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the keys at the end of the help text."""
        known = paper_names()
        named = [word for word in ctx.meta.get(_WORDS, ()) if word in known]
        for heading, lines in key_lines(named or known):
            with formatter.section(heading):
                formatter.write_dl(lines)
