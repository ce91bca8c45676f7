"""Convert the tables to and from checkpoint format: stages' columns, the arbiter's columns, and the ledger apart."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

import numpy as np

from eunomia.model.ledger import AppLedger, JobLedger
from eunomia.model.workload import Apps, Jobs
from eunomia.store.state import State

Saved = dict[str, Any]
"""A table's content as returned by ``Table.state``: ``used``, ``free`` and ``columns``."""

_JOB_ACCOUNTS: Final = {
    "lease": "lease",
    "gpus": "gpus",
    "ready_at": "ready_at",
    "reason": "reason",
    "stage": "stage",
    "plugin": "plugin",
    "round": "verdict_round",
    "since": "verdict_at",
    "order": "order",
    "attained": "attained",
    "waited": "waited",
    "received": "received",
    "on": "on",
    "booked_at": "counted_at",
}
"""Columns of ``JobRows`` by name in a checkpoint."""
_APP_ACCOUNTS: Final = {"area_at_arrival": "area_at_arrival", "ended": "ended", "gpu_seconds": "gpu_seconds"}
_LEDGER_KEPT: Final = {"jobs": ("job_ledger", "last_ran"), "apps": ("app_ledger", "contention")}
"""By table: its ledger in a checkpoint, and the one ledger column that other columns do not determine."""


def saved_tables(state: State) -> dict[str, Saved]:
    """Return all tables as plain values, for a checkpoint."""
    jobs, apps = state.jobs.state(), state.apps.state()
    return {
        "users": state.users.state(),
        "apps": _part(apps, {field.name: field.name for field in fields(Apps)}),
        "jobs": _part(jobs, {field.name: field.name for field in fields(Jobs)}),
        "app_accounts": _part(apps, _APP_ACCOUNTS),
        "job_accounts": _part(jobs, _JOB_ACCOUNTS),
        "app_ledger": _ledger(apps, state.app_ledger),
        "job_ledger": _ledger(jobs, state.job_ledger),
        "holdings": state.holdings.state(),
    }


def restore_tables(state: State, saved: Mapping[str, Saved]) -> None:
    """Restore the state's tables from a checkpoint."""
    state.users.restore(saved["users"])
    state.holdings.restore(saved["holdings"], rows=state.cluster.gpus)
    for table, name, accounts, renamed in (
        (state.jobs, "jobs", "job_accounts", _JOB_ACCOUNTS),
        (state.apps, "apps", "app_accounts", _APP_ACCOUNTS),
    ):
        own = saved[accounts]["columns"]
        columns = saved[name]["columns"] | {renamed[column]: own[column] for column in own if column in renamed}
        ledger, kept = _LEDGER_KEPT[name]
        columns[kept] = saved[ledger]["columns"][kept]
        table.restore({**saved[name], "columns": columns})
    _kept_since(state, saved["app_accounts"])


def _part(whole: Saved, columns: Mapping[str, str]) -> Saved:
    """Return a saved table with only the given columns, renamed to their names in a checkpoint."""
    return {**whole, "columns": {name: whole["columns"][column] for name, column in columns.items()}}


def _kept_since(state: State, accounts: Saved) -> None:
    """Set ``since`` of each GPU from an older checkpoint, which stores per app the time of the last accounting."""
    if "booked_at" not in accounts["columns"]:
        return
    counted_at = np.array([*accounts["columns"]["booked_at"], np.nan])
    state.holdings.set(np.arange(state.holdings.used), since=counted_at[state.holdings.live.app])


def _ledger(whole: Saved, ledger: AppLedger | JobLedger) -> Saved:
    used = whole["used"]
    return {**whole, "columns": {field.name: getattr(ledger, field.name)[:used].tolist() for field in fields(ledger)}}
