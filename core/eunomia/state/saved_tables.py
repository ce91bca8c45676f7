"""The tables as a checkpoint holds them: what stages see, the arbiter's own columns and the ledger are apart."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.workload import Apps, Jobs
from eunomia.state.state import State

Saved = dict[str, Any]
"""A table's content as ``Table.state`` gives it: ``used``, ``free`` and ``columns``."""

_JOB_ACCOUNTS: Final = {
    "lease": "lease",
    "gpus": "gpus",
    "ready_at": "ready_at",
    "reason": "reason",
    "stage": "stage",
    "plugin": "plugin",
    "round": "told_in",
    "since": "told_at",
    "order": "order",
    "attained": "attained",
    "waited": "waited",
    "received": "received",
    "on": "on",
    "booked_at": "counted_at",
}
"""Columns of ``JobRows`` by their names in a checkpoint."""
_APP_ACCOUNTS: Final = {
    "area_at_arrival": "area_at_arrival",
    "ended": "ended",
    "gpus": "gpus",
    "gpu_seconds": "gpu_seconds",
    "booked_at": "counted_at",
}
_LEDGER_KEPT: Final = {"jobs": ("job_ledger", "last_ran"), "apps": ("app_ledger", "contention")}
"""By table: the column of its ledger that does not follow from the others."""


def saved_tables(state: State) -> dict[str, Saved]:
    """All tables as plain values, for a checkpoint."""
    jobs, apps = state.jobs.state(), state.apps.state()
    return {
        "users": state.users.state(),
        "apps": _part(apps, {field.name: field.name for field in fields(Apps)}),
        "jobs": _part(jobs, {field.name: field.name for field in fields(Jobs)}),
        "app_accounts": _with_leases(state, _part(apps, _APP_ACCOUNTS)),
        "job_accounts": _part(jobs, _JOB_ACCOUNTS),
        "app_ledger": _ledger(apps, state.app_ledger),
        "job_ledger": _ledger(jobs, state.job_ledger),
        "holdings": state.holdings.state(),
    }


def restore_tables(state: State, saved: Mapping[str, Saved]) -> None:
    """Fill the state's tables from a checkpoint's."""
    state.users.restore(saved["users"])
    state.holdings.restore(saved["holdings"])
    for table, name, accounts, renamed in (
        (state.jobs, "jobs", "job_accounts", _JOB_ACCOUNTS),
        (state.apps, "apps", "app_accounts", _APP_ACCOUNTS),
    ):
        own = saved[accounts]["columns"]
        columns = saved[name]["columns"] | {renamed[column]: own[column] for column in own if column in renamed}
        ledger, kept = _LEDGER_KEPT[name]
        columns[kept] = saved[ledger]["columns"][kept]
        table.restore({**saved[name], "columns": columns})


def _part(whole: Saved, columns: Mapping[str, str]) -> Saved:
    """Some columns of a table, by their names in a checkpoint."""
    return {**whole, "columns": {name: whole["columns"][column] for name, column in columns.items()}}


def _with_leases(state: State, accounts: Saved) -> Saved:
    """Add the number of each app's leases, leaving ones included, to the columns."""
    leases_of = state.standing.leases_of
    counts = [len(leases_of.get(row, ())) for row in range(accounts["used"])]
    columns = accounts["columns"]
    first = {name: columns[name] for name in ("area_at_arrival", "ended")}
    return {**accounts, "columns": {**first, "leases": counts, **columns}}


def _ledger(whole: Saved, ledger: AppLedger | JobLedger) -> Saved:
    used = whole["used"]
    return {**whole, "columns": {field.name: getattr(ledger, field.name)[:used].tolist() for field in fields(ledger)}}
