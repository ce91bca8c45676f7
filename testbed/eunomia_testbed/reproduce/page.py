"""One self-contained page of a reproduction: the claims, and bars of what is behind them."""

import html
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

from eunomia_testbed.reproduce.cells import POLICIES, Cell, Figures
from eunomia_testbed.reproduce.grid import CONTENTIONS, KNOBS, LEASES, LIES, NETWORK_PARTS, NETWORK_POLICIES, Runs
from eunomia_testbed.reproduce.table import Row, count_line, fixed_lines
from eunomia_testbed.reproduce.verdicts import Verdict

_STYLE = """
:root { color-scheme: light dark; --line: #8886; --bar: #0072b2; --soft: #8882; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .35rem .6rem; text-align: left; vertical-align: top;
border-bottom: 1px solid var(--line); } td.why { color: #888; font-size: .9em; }
.verdict { white-space: nowrap; font-weight: 600; } .holds { color: #009e73; } .direction { color: #e69f00; }
.fails { color: #d55e00; } .unmeasured { color: #888; } figure { margin: 1.2rem 0; } svg text { fill: currentColor;
font: 12px system-ui, sans-serif; } .bars { display: grid; grid-template-columns: repeat(auto-fit, minmax(24rem, 1fr));
gap: 1rem; }
"""
_CLASS = {
    Verdict.HOLDS: "holds",
    Verdict.DIRECTION: "direction",
    Verdict.FAILS: "fails",
    Verdict.UNMEASURED: "unmeasured",
}


def page(title: str, rows: Sequence[Row], runs: Runs) -> str:
    """The page as HTML."""
    body = "".join(
        f"<tr><td>{html.escape(claim.figure)}</td><td>{html.escape(claim.text)}</td><td>{html.escape(claim.printed)}</td>"
        f'<td>{html.escape(found.text)}</td><td class="verdict {_CLASS[found.verdict]}">{found.verdict.value}</td>'
        f'<td class="why">{html.escape(found.reason)}</td></tr>'
        for claim, found in rows
    )
    fixed = "".join(f"<li>{html.escape(line)}</li>" for line in _paragraphs(fixed_lines(runs.grid)))
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{html.escape(title)}</h1><p>{html.escape(count_line(rows))}</p>"
        "<table><thead><tr><th>where</th><th>claim</th><th>paper</th><th>here</th><th>verdict</th><th>why</th></tr>"
        f'</thead><tbody>{body}</tbody></table><h2>Behind them</h2><div class="bars">{"".join(_pictures(runs))}</div>'
        f"<h2>Fixed before the first run</h2><ul>{fixed}</ul></body></html>\n"
    )


def _paragraphs(lines: Sequence[str]) -> list[str]:
    """Wrapped lines put together again."""
    found: list[str] = []
    for line in lines:
        if line.startswith("  ") and found:
            found[-1] += " " + line.strip()
        else:
            found.append(line)
    return found


def _pictures(runs: Runs) -> list[str]:
    grid = runs.grid

    def mean(make: Callable[[int], Cell], number: Callable[[Figures], float]) -> float | None:
        found = runs.of(make)
        return fmean(map(number, found)) if found else None

    def worst(one: Figures) -> float:
        return one.worst_rho

    def hours(one: Figures) -> float:
        return one.gpu_hours

    made: list[tuple[str, Mapping[str, float | None]]] = []
    for figure, workload in ((9, "1"), (10, "2")):
        bars = {p: mean(lambda s, p=p, w=workload: grid.testbed(w, p, s), worst) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure {figure}: worst ρ, workload {workload}", bars))
    for figure, workload in ((11, "1"), (12, "2")):
        bars = {p: mean(lambda s, p=p, w=workload: grid.testbed(w, p, s), hours) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure {figure}: GPU hours, workload {workload}", bars))
    for shrink in CONTENTIONS:
        bars = {p: mean(lambda s, p=p, x=shrink: grid.testbed("1", p, s, x), worst) for p in POLICIES}  # type: ignore[misc]
        made.append((f"Figure 14: worst ρ, contention x{shrink}", bars))
    for policy in NETWORK_POLICIES:
        bars = {
            f"{100 * part:.0f} %": mean(lambda s, x=part, p=policy: grid.network(x, p, s), worst)  # type: ignore[misc]
            for part in NETWORK_PARTS
        }
        made.append((f"Figure 15: worst ρ by network-intensive apps, {policy}", bars))

    def own_time(one: Figures) -> float:
        return one.jct_seconds[-1]

    lies = {f"{100 * lie:.0f} %": mean(lambda s, x=lie: grid.lie(x, s), own_time) for lie in LIES}  # type: ignore[misc]
    made.append(("Figure 18: completion time of the lying app, s", lies))
    knobs = {f"f {knob:g}": mean(lambda s, x=knob: grid.knob(x, 600.0, s), worst) for knob in KNOBS}  # type: ignore[misc]
    made.append(("Figure 19a: worst ρ by f", knobs))
    leases = {f"{lease / 60:g} min": mean(lambda s, x=lease: grid.knob(0.8, x, s), worst) for lease in LEASES}  # type: ignore[misc]
    made.append(("Figure 19a: worst ρ by lease", leases))
    return [_bars(title, {name: size for name, size in bars.items() if size is not None}) for title, bars in made]


def _bars(title: str, bars: Mapping[str, float]) -> str:
    """Horizontal bars with their numbers; nothing where nothing was run."""
    if not bars:
        return ""
    most = max(bars.values()) or 1.0
    lines = []
    for row, (name, size) in enumerate(bars.items()):
        top = 8 + 22 * row
        lines.append(
            f'<text x="84" y="{top + 13}" text-anchor="end">{html.escape(name)}</text>'
            f'<rect x="92" y="{top}" width="{230 * size / most:.1f}" height="16" fill="#0072b2"></rect>'
            f'<text x="{98 + 230 * size / most:.1f}" y="{top + 13}">{_short(size)}</text>'
        )
    height = 16 + 22 * len(bars)
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption>"
        f'<svg viewBox="0 0 400 {height}" width="400" height="{height}" role="img">{"".join(lines)}</svg></figure>'
    )


def _short(size: float) -> str:
    return f"{size:.4g}" if size < 1e4 else f"{size:.0f}"
