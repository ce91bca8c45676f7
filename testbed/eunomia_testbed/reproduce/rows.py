"""Claims as data: the file ``claims.toml`` of a paper, with a row for every number that the paper states.

A row says where its number stands, which figure of which cells measures it, and what the paper prints. Rows that are
not measured stand in groups with the reason that they share. ``claims`` turns rows into claims.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from eunomia.errors import InputError, InputErrors
from eunomia.platform.layers import read_toml

Fields = dict[str, Any]
"""Fields of a cell; a text that begins with ``@`` names a field or property of the grid."""


def _listed(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


def _factor(given: Any) -> Any:
    """Turn a text such as ``+8.1 %`` (1.081 times) or ``-19 %`` (1 / 0.81 times) into a ratio."""
    if not isinstance(given, str):
        return given
    match = re.fullmatch(r"([+-])(\d+(?:\.\d+)?) %", given)
    if not match:
        raise ValueError("a printed change must be such as '+8.1 %' or '-19 %'")
    part = float(match[2]) / 100.0
    return 1.0 + part if match[1] == "+" else 1.0 / (1.0 - part)


Texts = Annotated[list[str], BeforeValidator(_listed)]
Values = Annotated[list[Annotated[float, BeforeValidator(_factor)]], BeforeValidator(_listed)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaimRow(_Part):
    """A claim with the cells and the measure behind it."""

    where: str
    """Figure, table or section, which ``--only`` selects."""
    section: str
    """The section that states it."""
    text: str
    """The claim in a few words."""
    printed: str
    """The number or word that the paper prints."""
    measure: str
    """A name in ``measures.MEASURES``, or, with ``computed``, of a function of the paper."""
    kind: Literal["gain", "at least", "at most", "within"] = "gain"
    value: Values
    """The printed value, or one for each comparison; changes in percent become ratios."""
    number: Texts = Field(default_factory=list)
    """Names of figures of a cell; each makes a comparison."""
    unit: str = ""
    """How numbers are shown: empty, ``change``, ``%``, ``h``, ``s``, ``ms``, ``times``."""
    cells: str = ""
    """A name in the file's ``[cells]``."""
    own: str | Fields = ""
    over: str | list[str | Fields] = Field(default_factory=list)
    """The others: names, fields, or a name in the file's ``[lists]``."""
    at: str | list[Fields] = Field(default_factory=list)
    """Settings: fields of each, or ``@name`` of a property of the grid that returns them."""
    front: bool = False
    """Whether the row is about the front of several numbers: no other policy is better in all of them."""
    whole: int = 0
    """Settings that the paper has: with fewer, the greatest of them is shown and not judged."""
    margin: float | None = None
    """The printed margin of ``within``, as a part; None: 10 %, marked as ours."""
    drawn: bool = True
    """Whether seeds draw the input; else the cell runs once, with seed 0, as one input."""
    goal: bool = False
    """Whether the number is ours and not the paper's: goals are not counted."""
    floor: bool = False
    """Whether the paper's guard says if the workload can show the claim."""
    beyond: str = "a weaker baseline than the paper's is the likely reason"
    """The likely reason where the gain is more than 1.5 times the printed one."""
    construction: str = ""
    """Reason why the number holds by construction; empty: it does not."""
    contrast: str = ""
    """What one policy of the row knows beforehand, since the claim is about it; empty: rows with such knowledge have a
    twin."""
    why: str = ""
    """A remark that the reason begins with."""
    first_variant: bool = False
    """Whether it is measured under the paper's first variant alone, which counts."""
    note: str = ""
    """A name in the paper's notes: words about its cells that the reason ends with."""


class TableRow(_Part):
    """A table of levels beside the claims; it needs no cells but those of the claims."""

    title: str
    cells: str
    """A name in the file's ``[cells]``."""
    number: Texts
    """A column for each, under each variant of the paper."""
    at: list[Fields]
    """Settings, each with its ``label``."""
    over: list[str | Fields]
    """Lines in each setting: policies, or fields."""
    base: Fields
    """Fields that turn a line's cell into the one that its ratios are to."""


class Missing(_Part):
    """Rows that are not measured, with the reason that they share."""

    why: str
    measurable: bool = True
    """Whether a simulation could measure them; else they are not measurable here."""
    rows: list[tuple[str, str, str, str]]
    """Section, where, text and printed value of each."""


class RowsFile(_Part):
    """The file ``claims.toml`` of a paper."""

    title: str
    fixed: list[str]
    """Decisions made before the first run; ``{name}`` is a field of the grid or a fact of the paper."""
    inputs: list[str] = Field(default_factory=list)
    """Numbers of the paper that are settings here, with their section: they are no claims."""
    lists: dict[str, list[str]] = Field(default_factory=dict)
    cells: dict[str, Fields] = Field(default_factory=dict)
    missing: list[Missing] = Field(default_factory=list)
    claim: list[ClaimRow] = Field(default_factory=list)
    table: list[TableRow] = Field(default_factory=list)
    seconds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """CPU seconds that a simulation took where it was measured, by group of cells and by policy: an estimate."""


class PolicyRow(_Part):
    """A policy of the paper, in its file ``policies.toml``."""

    preset: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """What is changed in the preset, by dotted key."""
    sizes: str = ""
    """AFS: the sizes that jobs may have."""


def read_policies(folder: Path) -> dict[str, PolicyRow]:
    """Return the policies of a paper by the paper's names, from ``policies.toml`` in its folder."""
    content = read_toml((folder / "policies.toml").read_text(encoding="utf-8"), place="policies.toml")
    return {name: PolicyRow.model_validate(row) for name, row in content.items()}


def read_rows(path: Path) -> RowsFile:
    """Read the rows of a paper from its file.

    Raises:
        InputErrors: everything that is wrong with the file.
    """
    return parse_rows(path.read_text(encoding="utf-8"), place=path.name)


def parse_rows(text: str, *, place: str) -> RowsFile:
    """Read the rows of a paper from TOML.

    Args:
        text: the content of a file ``claims.toml``.
        place: where it came from, for errors.

    Raises:
        InputErrors: everything that is wrong with it.
    """
    content = read_toml(text, place=place)
    try:
        return RowsFile.model_validate(content)
    except ValidationError as error:
        raise InputErrors([_as_error(each, content, place) for each in error.errors()]) from error


def _as_error(each: Any, content: Mapping[str, Any], place: str) -> InputError:
    path = ".".join(map(str, each["loc"]))
    if each["loc"][0] == "claim" and len(each["loc"]) > 1:
        row: Any = content["claim"][each["loc"][1]]
        path = f"claim {row.get('where', '?')}: {row.get('text', '?')}: {each['loc'][-1]}"
    return InputError(
        f"claims must be rows: {each['msg']}", value=repr(each.get("input"))[:80], place=f"{place}, {path}"
    )


def section_order(section: str) -> tuple[float, ...]:
    """Return a key that sorts sections as the paper has them: the abstract, sections by number, then appendices.

    Of several, such as "Abstract, §6.2", the last counts.
    """
    last = section.rpartition(", ")[2]
    if last.startswith("App"):
        return (1000.0, *(float(ord(letter)) for letter in last.removeprefix("App. ")))
    return tuple(float(part) for part in re.findall(r"\d+", last)) or (0.0,)
