"""``eunomia market``: print the equilibrium of a small market, its prices, and whether its conditions hold."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import typer

from eunomia.own_stdout import own_stdout
from eunomia.units import Reals
from eunomia_market import Conditions, Market, MarketOutcome, read_market, unfold

OK: Final = 0
ANSWER_IS_NO: Final = 1
MOST_COLUMNS: Final = 12
"""Maximum number of rounds shown in the table; the JSON output contains all rounds."""
SMALL: Final = 1e-4
"""Amounts below this are printed as 0; a conic solver leaves residues of about this size."""


def market(
    instance: Annotated[Path, typer.Argument(metavar="INSTANCE", help="A TOML file with budgets, supply and agents.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the same as one JSON object.")] = False,
) -> int:
    """Solve a volatile Fisher market (Shockwave, §4): prices, purchases, finish-time fairness."""
    given = read_market(instance)
    with own_stdout():
        outcome = unfold(given)
    if as_json:
        typer.echo(json.dumps(_facts(given, outcome)))
    else:
        typer.echo("\n".join(_lines(given, outcome)))
    return OK if all(conditions.hold for _, conditions in outcome.solved) else ANSWER_IS_NO


def _facts(given: Market, outcome: MarketOutcome) -> dict[str, Any]:
    agents = [
        {
            "name": name,
            "budget": float(given.budget[agent]),
            "arrives": int(given.arrives[agent]) + 1,
            "spent": float(outcome.spent[agent]),
            "utility": float(outcome.utility[agent]),
            "rho": float(outcome.rho[agent]) if np.isfinite(outcome.rho[agent]) else None,
            "bought": dict(zip(given.resources, outcome.bought[agent].tolist(), strict=True)),
        }
        for agent, name in enumerate(given.names)
    ]
    return {
        "schema": "eunomia/market@1",
        "utility": given.utility.value,
        "agents": agents,
        "prices": dict(zip(given.resources, outcome.price.tolist(), strict=True)),
        "welfare": outcome.welfare,
        "rho_product": float(np.prod(outcome.rho)) if np.isfinite(outcome.rho).all() else None,
        "equilibria": [
            {"from_round": start + 1, "holds": one.hold, **{name: getattr(one, name) for name in _NAMES}}
            for start, one in outcome.solved
        ],
    }


_NAMES: Final = ("optimal_spending", "market_clearing", "budget_clearing", "oversold")


def _lines(given: Market, outcome: MarketOutcome) -> list[str]:
    wide = max(len("price"), *map(len, given.names))
    head = f"{'agent':<{wide}}   arrives   budget    spent   utility       ρ"
    lines = [head]
    for agent, name in enumerate(given.names):
        lines.append(
            f"{name:<{wide}}   {given.arrives[agent] + 1:>7}   {given.budget[agent]:>6.4g}   "
            f"{outcome.spent[agent]:>6.4g}   {outcome.utility[agent]:>7.4g}   {outcome.rho[agent]:>5.3f}"
        )
    for number, resource in enumerate(given.resources):
        lines += ["", *_table(given, outcome, number, resource, wide)]
    lines += ["", f"Nash social welfare over time {outcome.welfare:.4g}; product of ρ {np.prod(outcome.rho):.4g}"]
    lines += [_verdict(start, conditions) for start, conditions in outcome.solved]
    return [*lines, _fairness(given, outcome)]


def _table(given: Market, outcome: MarketOutcome, number: int, resource: str, wide: int) -> list[str]:
    shown = min(given.rounds, MOST_COLUMNS)
    rest = "" if shown == given.rounds else f"   ... {given.rounds - shown} more rounds, see --json"
    lines = [f"{resource}, units bought by round"]
    lines.append(f"{'round':<{wide}}" + "".join(f"   {round_ + 1:>6}" for round_ in range(shown)) + rest)
    rows = [(name, outcome.bought[agent, number]) for agent, name in enumerate(given.names)]
    for name, values in (*rows, ("price", outcome.price[number])):
        least = SMALL * max(float(values.max()), float(outcome.bought[:, number].max()) if name != "price" else 0.0)
        lines.append(f"{name:<{wide}}" + "".join(f"   {_number(value, least):>6}" for value in values[:shown].tolist()))
    return lines


def _number(value: float, least: float) -> str:
    return "0" if value <= least else f"{value:.4g}"


def _verdict(start: int, conditions: Conditions) -> str:
    what = "equilibrium" if conditions.hold else "NO equilibrium"
    return (
        f"{what} from round {start + 1}: an agent could get {_part(conditions.optimal_spending)} more for its budget, "
        f"{_part(conditions.market_clearing)} of all budgets' worth is unsold, "
        f"{_part(conditions.budget_clearing)} of a budget is unspent"
    )


def _part(violation: float) -> str:
    return "0 %" if violation < SMALL else f"{100.0 * violation:.2g} %"


def _fairness(given: Market, outcome: MarketOutcome) -> str:
    worst: int = int(np.argmax(outcome.rho))
    rho: Reals = outcome.rho
    if (rho <= 1.0 + SMALL).all():
        return "ρ is at most 1 for every agent: none gets less than from an equal part of the supply"
    why = [
        *(["arrivals are a surprise"] if given.surprise else []),
        *(["agents arrive late"] if (given.arrives > 0).any() else []),
        *(["budgets differ"] if np.ptp(given.budget) > 0.0 else []),
    ]
    reason = f" ({', '.join(why)})" if why else ""
    return f"ρ is {rho[worst]:.3f} for {given.names[worst]}: it gets less than from an equal part of the supply{reason}"
