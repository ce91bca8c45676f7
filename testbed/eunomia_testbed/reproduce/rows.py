"""Claims as data: the file ``claims.toml`` of a paper, with a row for every number that the paper states.

A row has the place of a number in the paper, the cells and the measure that reproduce it, and the printed value. Rows
that are not measured are grouped by their common reason. ``claims`` turns rows into claims.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from eunomia.errors import InputError, InputErrors
from eunomia.platform.layers import read_toml

Fields = dict[str, Any]
"""Fields of a cell; a text that begins with ``@`` refers to a field or property of the grid."""


def _listed(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


def _factor(given: Any) -> Any:
    """Convert a text such as ``+8.1 %`` (1.081 times) or ``-19 %`` (1 / 0.81 times) into a ratio."""
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
    """A claim: its place and printed value in the paper, and the cells and the measure that reproduce it."""

    where: str
    """Figure, table or section, by which ``--only`` selects the claim."""
    section: str
    """The section that states the claim."""
    text: str
    """The claim in a few words."""
    printed: str
    """The number or word that the paper prints."""
    measure: str
    """A name in ``measures.MEASURES``, or, for ``computed``, the name of a function of the paper."""
    kind: Literal["gain", "at least", "at most", "within"] = "gain"
    value: Values
    """The printed value, or one for each comparison; changes in percent are converted to ratios."""
    number: Texts = Field(default_factory=list)
    """Names of a cell's numbers; each number yields a comparison."""
    unit: str = ""
    """Unit in which numbers are shown: empty, ``change``, ``%``, ``h``, ``s``, ``ms``, ``times``."""
    cells: str = ""
    """Name of the cells in the file's ``[cells]``."""
    own: str | Fields = ""
    over: str | list[str | Fields] = Field(default_factory=list)
    """What the row's cell is compared with: names of policies, cell fields, or a name in the file's ``[lists]``."""
    at: str | list[Fields] = Field(default_factory=list)
    """Settings: the fields of each, or ``@name`` for a property of the grid that returns them."""
    front: bool = False
    """Whether the claim is about the Pareto front of several numbers: no other policy is better in all of them."""
    whole: int = 0
    """Number of settings that the paper has; with fewer, the greatest of them is shown but not judged."""
    margin: float | None = None
    """The margin of ``within`` that the paper prints, as a fraction; None: 10 %, marked as ours."""
    drawn: bool = True
    """Whether seeds draw the input; otherwise the cell runs once, with seed 0."""
    goal: bool = False
    """Whether the number is ours and not the paper's; goals are not counted as claims."""
    floor: bool = False
    """Whether the paper's guard decides if the workload can show the claim."""
    beyond: str = "a weaker baseline than the paper's is the likely reason"
    """The likely reason for a gain of more than 1.5 times the printed one."""
    construction: str = ""
    """Reason why the claim holds by construction; empty: it does not."""
    contrast: str = ""
    """What one policy of the row knows beforehand, if the claim is about that knowledge; empty: all policies
    of the row must know the same."""
    why: str = ""
    """A remark at the beginning of the reason."""
    first_variant: bool = False
    """Whether the claim is measured only under the paper's first variant, which determines verdicts."""
    note: str = ""
    """Name of a function in the paper's notes, whose text about the cells ends the reason."""


class TableRow(_Part):
    """A table of numbers next to the claims; it uses only cells that the claims need."""

    title: str
    cells: str
    """Name of the cells in the file's ``[cells]``."""
    number: Texts
    """Names of the numbers; each is a column under each variant of the paper."""
    at: list[Fields]
    """Cell fields of each group of lines, with the group's ``label``."""
    over: list[str | Fields]
    """Lines of each setting: policies, or fields."""
    base: Fields
    """Fields that turn a line's cell into the cell to which its ratios refer."""


class Missing(_Part):
    """Rows that are not measured, with their common reason."""

    why: str
    measurable: bool = True
    """Whether a simulation could measure them; otherwise they are not measurable here."""
    rows: list[tuple[str, str, str, str]]
    """Section, place, text and printed value of each row."""


class RowsFile(_Part):
    """The file ``claims.toml`` of a paper."""

    title: str
    fixed: list[str]
    """Decisions made before the first run; ``{name}`` is a field of the grid or a fact of the paper."""
    inputs: list[str] = Field(default_factory=list)
    """Numbers of the paper that are settings here and therefore no claims, with their section."""
    lists: dict[str, list[str]] = Field(default_factory=dict)
    cells: dict[str, Fields] = Field(default_factory=dict)
    missing: list[Missing] = Field(default_factory=list)
    claim: list[ClaimRow] = Field(default_factory=list)
    table: list[TableRow] = Field(default_factory=list)
    seconds: dict[str, dict[str, float]] = Field(default_factory=dict)
    """Estimates of a simulation's CPU seconds, measured once, by group of cells and policy."""


class PolicyRow(_Part):
    """A policy of the paper, from its file ``policies.toml``."""

    preset: str
    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings that override the preset's, by dotted key."""
    sizes: str = ""
    """The sizes that jobs may have; used by AFS only."""


def read_policies(folder: Path) -> dict[str, PolicyRow]:
    """Return the policies of a paper by their names in the paper, from ``policies.toml`` in its folder."""
    content = read_toml((folder / "policies.toml").read_text(encoding="utf-8"), place="policies.toml")
    return {name: PolicyRow.model_validate(row) for name, row in content.items()}


def read_rows(path: Path) -> RowsFile:
    """Read the rows of a paper from its file.

    Raises:
        InputErrors: all errors in the file.
    """
    return parse_rows(path.read_text(encoding="utf-8"), place=path.name)


def parse_rows(text: str, *, place: str) -> RowsFile:
    """Parse the rows of a paper from TOML.

    Args:
        text: the content of a file ``claims.toml``.
        place: the origin of the text, for errors.

    Raises:
        InputErrors: all errors in the text.
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
    """Return a sort key for sections in the paper's order: the abstract, numbered sections, then appendices.

    For several sections, such as "Abstract, §6.2", the last one counts.
    """
    last = section.rpartition(", ")[2]
    if last.startswith("App"):
        return (1000.0, *(float(ord(letter)) for letter in last.removeprefix("App. ")))
    return tuple(float(part) for part in re.findall(r"\d+", last)) or (0.0,)
