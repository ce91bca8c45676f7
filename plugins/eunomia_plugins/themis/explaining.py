"""Explain why a job of an app waits after an auction, from the auction's record."""

from eunomia import Decision, Explanation, Snapshot
from eunomia.contract.decisions import RecordTable
from eunomia.units import JobId


def explain(snapshot: Snapshot, decision: Decision, job: JobId, plugin: str) -> Explanation | None:
    """Explain from the record of the decision's auction; return None if the decision has none."""
    tables = [one for one in decision.records if one.plugin == plugin and one.table == "auction"]
    if not tables:
        return None
    lines = _lines(tables[0])
    app = job.split("/", 1)[0]
    mine = next((line for line in lines if line["app"] == app and line["bid"]), None)
    if mine is None:
        return Explanation(text=_not_offered(app, lines), numbers={})
    if mine["gpus_kept"]:
        return Explanation(text=_shared(app, mine), numbers=_numbers(mine))
    if mine["gpus_won"]:
        return Explanation(text=_held_back(app, mine), numbers=_numbers(mine))
    return Explanation(text=_outbid(app, mine, lines), numbers=_numbers(mine))


Entry = dict[str, float | int | str | bool | None]


def _lines(table: RecordTable) -> list[Entry]:
    many = len(table.columns["app"])
    return [{name: column[at] for name, column in table.columns.items()} for at in range(many)]


def _numbers(mine: Entry) -> dict[str, float]:
    numbers = {"rho": float(mine["rho_now"] or 0.0)}
    if mine["rho_least"] is not None:
        numbers[f"rho_with_{mine['gpus_least']}"] = float(mine["rho_least"])
    if mine["pays"] is not None:
        numbers["pays"] = float(mine["pays"])
    return numbers


def _gain(line: Entry, rho: str) -> str:
    before, after = float(line["rho_now"] or 0.0), float(line[rho] or 0.0)
    return f"{line['app']} ρ {before:.2f} to {after:.2f} ({before / after:.2f} times)"


def _slots(gpus: object) -> str:
    return f"{gpus} free slot" if gpus == 1 else f"{gpus} free slots"


def _outbid(app: str, mine: Entry, lines: list[Entry]) -> str:
    winners = [_gain(line, "rho_won") for line in lines if line["gpus_won"]]
    own = f"{app} could use none of them" if mine["rho_least"] is None else _gain(mine, "rho_least")
    if not winners:
        return f"No app won any of {_slots(mine['gpus_offered'])}; {own}."
    return f"{_slots(mine['gpus_offered'])} went to the apps that gain most together: {', '.join(winners)}; {own}."


def _shared(app: str, mine: Entry) -> str:
    won = f"{app} won {mine['gpus_kept']} of {_slots(mine['gpus_offered'])}"
    return f"{won}; its tuner decides which of its jobs run on the GPUs that it holds."


def _held_back(app: str, mine: Entry) -> str:
    pays = float(mine["pays"] or 0.0)
    return (
        f"{app} won {mine['gpus_won']} of {_slots(mine['gpus_offered'])} and paid {pays:.2f} of it for what it cost "
        "the others: a part of an indivisible bundle is kept by chance, and this one was not."
    )


def _not_offered(app: str, lines: list[Entry]) -> str:
    worse = [f"{line['app']} ρ {float(line['rho_now'] or 0.0):.2f}" for line in lines if line["bid"]]
    if not worse:
        return f"The offer went to no app: {app} and all others could use none of the free GPUs."
    return f"The offer went to the apps with the worst ρ: {', '.join(worse)}; {app} was not among them."
