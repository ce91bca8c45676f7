"""The closed set of reasons: in words, in the manual, and the ways that free a job."""

import re
import string
from dataclasses import fields
from pathlib import Path

import pytest

from eunomia.contract.verdicts import Reason
from eunomia.explain.facts import Facts
from eunomia.explain.reasons import SENTENCES
from eunomia.explain.remedies import REMEDIES

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reasons.md"


def rows(first: str) -> dict[str, list[str]]:
    """Rows of the table whose first column has that title."""
    table = PAGE.read_text().split(f"| {first} |", 1)[1].split("\n\n", 1)[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_every_reason_has_a_text() -> None:
    assert list(SENTENCES) == list(Reason)


def test_the_page_of_reasons_lists_exactly_the_reasons_and_remedies_of_the_code() -> None:
    assert list(rows("reason")) == [reason.word for reason in Reason]
    assert all(len(cells) == 3 and all(cells) for cells in rows("reason").values())
    assert list(rows("what")) == list(REMEDIES)


@pytest.mark.parametrize("reason", Reason)
def test_texts_of_reasons_use_only_known_facts(reason: Reason) -> None:
    known = {field.name for field in fields(Facts)} | {"wanted", "planned", "queue", "round_state", "in_service"}
    named = {name for _, name, _, _ in string.Formatter().parse(SENTENCES[reason]) if name}
    assert named <= known
    assert not re.search(r"\bGPUs?\b", SENTENCES[reason]), "people hold slots"
