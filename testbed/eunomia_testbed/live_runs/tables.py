"""The tables of a live run, from its log, event files, trials and auctions."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import polars as pl
import structlog

from eunomia.contract.events import Adapted
from eunomia.errors import EunomiaError
from eunomia.platform.registry import Registry, default_registry
from eunomia_appmaster.explaining.activity import RESIZED, Line
from eunomia_testbed.live_runs.live_log import LiveLog
from eunomia_testbed.live_runs.logged import search_of
from eunomia_testbed.live_runs.record import LiveRecord
from eunomia_testbed.live_runs.scalars import Scalars
from eunomia_testbed.metrics.times_alone import TimesAlone, judge_apps
from eunomia_testbed.results import ResultFolder
from eunomia_testbed.results import tables as t
from eunomia_testbed.results.added import Added, write_added
from eunomia_testbed.results.plugin_metrics import HOOK, added_by, metrics_of, with_metrics
from eunomia_testbed.run_log.tables import LogTables, MadeTables

_TOLD = frozenset(
    {
        *("suspended", "resumed", "paused", "promoted", "finished", "stopped", "stalled", "failed", "lost_checkpoints"),
        RESIZED,
    }
)
_WORDS = {
    "paused": "paused at its rung",
    "failed": "failed",
    "suspended": "suspended",
    "stopped": "stopped early",
    RESIZED: "changed its size without a restart",
    "lost_checkpoints": "lost its newest checkpoints, and goes on",
}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RhoSample:
    """An app's ρ and slots at a Unix time, as the arbiter reported them."""

    at: float
    app: str
    rho: float | None
    slots: int


class Tables:
    """The tables of one run.

    Args:
        record: record of the run, already read to its end.
        samples: ρ over time, sampled during the run; empty: the values in records of auctions are used.
        registry: the plugins whose metrics are added; None: all installed plugins.
        alone: by app, the times alone of its jobs, from which all kinds of ρ are computed; None: only Themis' ρ is
            computed, from the work that app masters report.
    """

    def __init__(
        self,
        record: LiveRecord,
        samples: Sequence[RhoSample] = (),
        *,
        registry: Registry | None = None,
        alone: Mapping[str, TimesAlone] | None = None,
    ) -> None:
        self._record, self._samples, self._alone = record, samples, alone
        self._plugins = default_registry() if registry is None else registry
        self._scalars = Scalars(record)
        self._live = LiveLog(record, self._scalars.first_steps)

    def write(self, folder: ResultFolder, *, policy: str, seed: int) -> None:
        """Write all tables, the plugins' records, and the summary to a result folder."""
        added, frames = self._measured(self._tables(policy, seed))
        write_added(added, folder.path)
        for name, frame in frames.items():
            folder.write_frame(name, frame)
        for plugin, records in self.records().items():
            folder.write_record(plugin, records, policy=policy, seed=seed)
        folder.write_summary()

    def _measured(self, tables: MadeTables) -> tuple[Added, Mapping[str, pl.DataFrame]]:
        """Return the tables with plugins' metrics, or without metrics if one fails: a live run cannot be repeated."""
        try:
            added, made = added_by([self._plugins]), with_metrics(tables, metrics_of(self._plugins))
            return added, dict(made.items())
        except EunomiaError as error:
            structlog.get_logger().warning("plugin.failed", hook=HOOK, why=str(error))
            return {}, tables

    def _tables(self, policy: str, seed: int) -> MadeTables:
        """Return the tables by name; each table is computed when it is read."""
        rows: dict[str, Callable[[], Iterable[Any]]] = {
            "rho": self._rho,
            "searches": self._searches,
            "metrics": lambda: self._scalars.rows(self._live),
            "trials": self._trials,
            "rungs": self._rungs,
            "events": self._events,
        }
        log = self._live.log(self._scalars.repeated)
        judged = () if self._alone is None else (judge_apps(log, self._alone, self._record.slots),)
        of_log = LogTables(log, policy=policy, seed=seed, apps=judged).makers()
        of_rows = {
            name: functools.partial(lambda name: t.frame_of(name, rows[name](), policy=policy, seed=seed), name)
            for name in rows
        }
        return MadeTables(of_log | of_rows)

    # -- searches

    def _trials(self) -> Iterator[t.TrialRow]:
        notes = self._record.notes()
        for app in sorted(self._record.apps):
            best = (notes.get(app, {}).get("standing") or {}).get("best_job")
            for trial in self._live.trials[app]:
                yield t.TrialRow(
                    app=app,
                    job=self._live.name(trial.job),
                    params=trial.parameters,
                    state=trial.state,
                    rung=trial.rung,
                    iterations=trial.iterations,
                    metric=trial.best,
                    best=trial.job == best,
                    error=trial.why or None if trial.state == "failed" else None,
                )

    def _searches(self) -> Iterator[t.SearchRow]:
        for app in sorted(self._record.apps):
            search = search_of(self._record.app_dir(app))
            if search.metric:
                yield t.SearchRow(app=app, metric=search.metric, mode=search.mode, max_iterations=search.max_iterations)

    def _rungs(self) -> Iterator[t.RungRow]:
        for job, lines in self._live.lines.items():
            reached = [at for at, line in enumerate(lines) if _is_judged(line)]
            for rung, at in enumerate(reached):
                line = lines[at]
                after = [later.event for later in lines[at + 1 :]]
                promoted = "promoted" in after or rung < len(reached) - 1
                verdict = "finished" if line.event == "finished" else "promoted" if promoted else "stopped"
                yield t.RungRow(
                    app=line.app,
                    job=self._live.name(job),
                    rung=rung,
                    iterations=line.step,
                    time_seconds=self._live.since(line.at),
                    metric=self._scalars.metric_at(job, line.step),
                    verdict=verdict,
                )

    # -- records of plugins

    def records(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of every plugin's record over all rounds, with round and time, by plugin."""
        made: dict[str, list[dict[str, Any]]] = {}
        for each in self._record.rounds.rounds:
            for plugin, rows in each.records.items():
                for row in rows:
                    plain = {name: value for name, value in row.items() if name != "decided_at"}
                    timed = {"round": plain.pop("round"), "time_seconds": self._live.since(row["decided_at"])}
                    made.setdefault(plugin, []).append(timed | plain)
        return made

    def _rho(self) -> Iterator[t.RhoRow]:
        for sample in self._samples or self._recorded_rho():
            if sample.rho is None:
                continue  # the policy computes no ρ, or the app had not reported its work
            yield t.RhoRow(
                app=sample.app, time_seconds=self._live.since(sample.at), rho=sample.rho, slots=sample.slots
            )  # fmt: skip

    def _recorded_rho(self) -> Iterator[RhoSample]:
        for made in self._record.rounds.auctions:
            for row in made.lines:
                if row["rho_now"] is not None:
                    held = sum(
                        hold.app == row["app"] and hold.start <= made.at < (hold.end or math.inf)
                        for hold in self._record.holds.holds
                    )
                    yield RhoSample(at=made.at, app=row["app"], rho=row["rho_now"], slots=held)

    # -- what happened

    def _events(self) -> Iterator[t.EventRow]:
        rows = [
            t.EventRow(
                time_seconds=self._live.since(line.at),
                kind=f"job.{line.event}",
                app=line.app,
                job=self._live.name(line.job),
                text=f"{self._live.name(line.job)} {_WORDS.get(line.event, line.event)} at {line.step}",
            )
            for line in self._record.lines
            if line.event in _TOLD
        ]
        rows += [self._adaptation(event, at) for event, at in self._record.adapted.items()]
        for app, life in self._record.apps.items():
            rows.append(self._app_event(app, "arrived", life.arrived_at))
            if life.again_at is not None:
                rows.append(self._app_event(app, "resumed", life.again_at))
            if life.ended_at is not None:
                rows.append(self._app_event(app, life.state, life.ended_at))
        yield from sorted(rows, key=lambda row: row.time_seconds)

    def _adaptation(self, event: Adapted, at: float) -> t.EventRow:
        app, name = str(event.job).rpartition("/")[0], self._live.name(str(event.job))
        done = "" if math.isnan(event.iterations_done) else f" at {event.iterations_done:g}"
        text = f"{name} goes on with batch size {event.batch_size:g}{done}"
        return t.EventRow(time_seconds=self._live.since(at), kind="job.adapted", app=app, job=name, text=text)

    def _app_event(self, app: str, what: str, at: float) -> t.EventRow:
        return t.EventRow(time_seconds=self._live.since(at), kind=f"app.{what}", app=app, text=f"{app} {what}")


def _is_judged(line: Line) -> bool:
    """Return whether a trial reached a rung or its end, or its tuner stopped it while it ran."""
    return line.event in ("paused", "finished") or (line.event == "stopped" and bool(line.slots))
