"""The stored record of a reproduction: its claims as JSON, and a page of tables made from them.

A row that a run has not measured keeps its recorded result, which is marked as stale. Such pages are written only here.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from eunomia_testbed.reproduce.verdicts import NOT_RUN, Verdict

Plain = dict[str, Any]


def keep_record(folder: Path, outcome: Mapping[str, Any], *, title: str, code: str, fixed: Sequence[str]) -> None:
    """Write the record of a paper and its page into a folder, as ``NAME.json`` and ``NAME.md``.

    Args:
        folder: the folder of the documents; rows that were not run are taken from an earlier record there.
        outcome: the content of ``claims.json``.
        title: the paper's title.
        code: fingerprint of the code that ran.
        fixed: the decisions made before the first run.
    """
    path = folder / f"{outcome['paper']}.json"
    nothing: Plain = {"claims": [], "code": code}
    earlier: Plain = json.loads(path.read_text(encoding="utf-8")) if path.exists() else nothing
    aged = earlier["code"] != code
    rows = merged(outcome["claims"], earlier["claims"], aged=aged)
    tables = merged_tables(outcome.get("tables", []), earlier.get("tables", []), aged=aged)
    record = {**outcome, "title": title, "code": code, "fixed": list(fixed), "claims": rows, "tables": tables}
    record.pop("out", None)
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(markdown(record), encoding="utf-8")


def merged(rows: Sequence[Plain], earlier: Sequence[Plain], *, aged: bool) -> list[Plain]:
    """Return the rows; one that was not measured this time keeps its recorded result, marked stale if ``aged``."""
    known = {(row["figure"], row["claim"]): row for row in earlier}
    found = []
    for row in rows:
        before = known.get((row["figure"], row["claim"]))
        if _not_run(row) and before is not None and not _not_run(before):
            found.append({**row, **before, "stale": bool(before["stale"] or aged)})
        else:
            by_seed = {name: [float(f"{each:.4g}") for each in numbers] for name, numbers in row["by_seed"].items()}
            found.append({**row, "by_seed": by_seed, "values": [float(f"{each:.4g}") for each in row["values"]]})
    return found


def _not_run(row: Plain) -> bool:
    return bool(row["why"].startswith(NOT_RUN.reason))


def merged_tables(tables: Sequence[Plain], earlier: Sequence[Plain], *, aged: bool) -> list[Plain]:
    """Return the tables; a recorded table, stale if ``aged``, is kept if the new one is missing or has fewer seeds."""
    now = {table["title"]: table for table in tables}
    kept = {}
    for before in earlier:
        title = before["title"]
        if title not in now or now[title]["seeds"][0] < before["seeds"][0]:
            kept[title] = {**before, "stale": bool(before["stale"] or aged)}
    return [*({**now, **kept}.values())]


def markdown(record: Mapping[str, Any]) -> str:
    """Return the page of a record: counts by verdict, the claims by section and figure, goals, and prior decisions."""
    rows = record["claims"]
    claims, goals = ([row for row in rows if row["goal"] is goal] for goal in (False, True))
    count = Counter(row["verdict"] for row in claims)
    stale = sum(row["stale"] for row in rows)
    lines = [
        f"# {record['title']}, measured again",
        "",
        f"Written by `eunomia reproduce {record['paper']} --docs` alone. [How to read it](../../how-to/reproduce.md).",
        "",
        f"Code {record['code']}; {stale} of {len(rows)} rows are stale, marked †: other code ran their simulations.",
        "",
        "| " + " | ".join(["claims", *(verdict.value for verdict in Verdict)]) + " |",
        "|---" * (len(Verdict) + 1) + "|",
        "| " + " | ".join(map(str, [len(claims), *(count[verdict.value] for verdict in Verdict)])) + " |",
        *_table(claims, "Every number, by section and figure"),
    ]
    if goals:
        lines += _table(goals, "Goals, which are ours and are not counted")
    for table in record.get("tables", []):
        lines += _levels(table)
    lines += ["", "## Fixed before the first run", "", *(f"- {line}" for line in record["fixed"])]
    return "\n".join(lines) + "\n"


def _levels(table: Plain) -> list[str]:
    """Return a table of numbers as Markdown, with a sentence that explains them."""
    least, most = table["seeds"]
    seeds = f"{most} seeds" if least == most else f"{least} to {most} seeds"
    stale = "; stale †: other code ran some of its simulations" if table["stale"] else ""
    return [
        "",
        f"## {table['title']}",
        "",
        f"Means over {seeds}, in brackets the ratio on the same seeds with its 95 % interval{stale}.",
        "",
        *("| " + " | ".join(line) + " |" for line in (table["head"], ["---"] * len(table["head"]), *table["lines"])),
    ]


def _table(rows: Sequence[Plain], heading: str) -> list[str]:
    lines = ["", f"## {heading}", "", "| section | where | claim | paper | here | verdict | why |", "|---" * 7 + "|"]
    for row in rows:
        verdict = row["verdict"] + (" †" if row["stale"] else "")
        verdict += f", depends on {row['depends_on']}" if row["depends_on"] else ""
        why = "; ".join([row["why"], *(f"{name}: {words}" for name, words in row["beside"].items()), row["marked"]])
        cells = [
            row["section"],
            row["figure"],
            row["claim"],
            row["paper"],
            row["here"],
            verdict,
            why.removesuffix("; "),
        ]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return lines
