"""``eunomia replay``: runs a trace with real training, here or at a running arbiter, and simulates the same plan."""

import dataclasses
import functools
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import typer

from eunomia.errors import EunomiaError, InputError
from eunomia.model.shapes import builds
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_testbed.live_runs.interrupts import ignoring_interrupts, terminable
from eunomia_testbed.performance.replay_profiles import Measurements
from eunomia_testbed.replay.arbiters import ReplayArbiter, own_arbiters
from eunomia_testbed.replay.cells import RealRun, Replay, cleared, interleaved, invalid_runs, is_done, write_done
from eunomia_testbed.replay.draft import Draft
from eunomia_testbed.replay.flags import ReplayFlags
from eunomia_testbed.replay.preparing import MEASURED, MEASURING, PreparedReplay, drafted, prepared

OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130


@with_flags(ReplayFlags)
def replay(flags: ReplayFlags) -> int:
    """Run a trace's jobs with real training, here or at a running arbiter, and hold a simulation against it."""
    from eunomia_appmaster.node.process_logs import configure_logs

    configure_logs(level="warning")
    say = _say if flags.progress and not flags.quiet else _silent
    if flags.resume is not None:
        return _go_on(flags, flags.resume, say)
    _check(flags)
    place, arbiter = _Place(flags), _arbiter(flags)
    if flags.measure_only:
        return _measure_alone(flags, arbiter, place, say)
    ready = prepared(flags, lambda draft: _measured(draft, arbiter, place, say), arbiter)
    for note in ready.notes:
        say(note)
    out = place.folder
    runs = interleaved(list(ready.plan.profiles), ready.plan.seeds)
    kept = flags.kept() | {"profiles": str(out / MEASURED), "speed": f"{ready.forecast.speed!r}x"}
    (out / MEASURED).write_text(ready.measured.to_toml(), encoding="utf-8")
    made = Replay(flags=kept, folder=str(Path.cwd()), plan=_hash(ready), runs=runs)
    made.write(out)
    return _Running(out=out, ready=ready, made=made, flags=flags, arbiter=arbiter, say=say).finish()


class _Place:
    """The replay's folder, created at first use, so that a replay that is rejected before leaves no folder."""

    def __init__(self, flags: ReplayFlags) -> None:
        self._flags = flags

    @functools.cached_property
    def folder(self) -> Path:
        """Return the new folder's path.

        Raises:
            InputError: the folder exists, or cannot be created.
        """
        return _new_folder(self._flags)


def _go_on(flags: ReplayFlags, out: Path, say: Callable[[str], None]) -> int:
    """Resume an interrupted replay: make the remaining runs of the same plan, and return the exit code."""
    if flags.trace is not None or flags.workload is not None or flags.out is not None:
        raise InputError("--resume must stand alone: the folder keeps the trace and the flags", value="a trace")
    out = out.resolve()
    made = Replay.read(out)
    os.chdir(made.folder)
    before = flags.again(dict(made.flags))
    arbiter = _arbiter(before, out)
    ready = prepared(before.model_copy(update={"anyway": True}), _none_to_measure, arbiter)
    if _hash(ready) != made.plan:
        rule = "--resume must go on with the same trace, policies and version of Eunomia"
        raise InputError(rule, value="another plan than that of the folder", place=str(out))
    done = sum(is_done(out, run) for run in made.runs)
    say(f"{done} of {len(made.runs)} runs are done")
    return _Running(out=out, ready=ready, made=made, flags=before, arbiter=arbiter, say=say).finish()


@builds
class _Running:
    """Carries out a planned replay: its real runs, its simulation, and its result tables."""

    out: Path
    ready: PreparedReplay
    made: Replay
    flags: ReplayFlags
    arbiter: ReplayArbiter
    say: Callable[[str], None]

    def finish(self) -> int:
        """Make the remaining runs, simulate the plan, write the tables, and return the exit code."""
        from eunomia_testbed.replay.results import begin_real, write_dropped

        self.ready.draft.slots.choose(os.environ)
        begin_real(self.out, self.ready, self.made)
        write_dropped(self.out, self.ready.plan)
        ended = "finished"
        left = [run for run in self.made.runs if not is_done(self.out, run)]
        try:
            if left:
                users = sorted({app.user for app in self.ready.plan.apps})
                with terminable(), self.arbiter.serving(self.out, users):
                    for run in left:
                        self._make(run)
        except KeyboardInterrupt:
            ended = "interrupted"
        with ignoring_interrupts():
            return self._tell(ended)

    def _make(self, run: RealRun) -> None:
        """Make one real run, and write its tables; an interrupted run leaves partial tables."""
        from eunomia_testbed.replay.faults.verdict import judged
        from eunomia_testbed.replay.gpu_meter import GpuMeter
        from eunomia_testbed.replay.results import write_real
        from eunomia_testbed.replay.running import LIMIT_BUDGETS, check_finished, run_for_real
        from eunomia_testbed.replay.screen import Lines

        folder = cleared(self.out, run)
        live = self.arbiter.run_of(self.out, self.ready.plan, run, folder)
        lines = Lines(self.say, self.made.runs.index(run) + 1, len(self.made.runs))
        try:
            loop = self.ready.measured.loop_seconds
            limit = LIMIT_BUDGETS * self.ready.forecast.budget_seconds
            with GpuMeter(folder, self.ready.draft.slots.gpus_here):
                record = run_for_real(self.ready.plan, run, live, lines.show, loop_seconds=loop, limit_seconds=limit)
        finally:
            with ignoring_interrupts():
                live.stop()
                if live.record.cluster is not None and live.record.apps:
                    write_real(self.out, self.ready, live.record, live.samples, policy=run.policy, seed=run.seed)
                live.record.close()
        if live.carrier is not None:
            judged(folder, live.carrier.hits)
        check_finished(live.record, [app.name for app in self.ready.plan.apps], folder)
        write_done(self.out, run, record)
        lines.end(live.record)

    def _tell(self, ended: str) -> int:
        """Simulate the plan, write the tables of both sides and the page, print them, and return the exit code."""
        from eunomia_testbed.replay.gpu_meter import write_gpu_use
        from eunomia_testbed.replay.results import facts_of, write_both, write_simulated
        from eunomia_testbed.replay.sides import HEADINGS, table_lines

        done = sum(is_done(self.out, run) for run in self.made.runs)
        facts = dataclasses.replace(facts_of(self.ready, self.made), ended_at=utc(), ended=ended)
        invalid = invalid_runs(self.out, self.made.runs)
        facts = dataclasses.replace(facts, notes=(*facts.notes, *(f"invalid: {each}" for each in invalid)))
        write_simulated(self.out, self.ready)
        sides, page = write_both(self.out, facts, self.ready.plan)
        write_gpu_use(self.out, self.made.runs)
        why = self._apart() if sides else []
        faults, good = self._faults()
        goes_on = f"eunomia replay --resume {shlex.quote(str(self.out))} goes on"
        if self.flags.as_json:
            plain: dict[str, object] = {"schema": "eunomia/replayed@1", "out": str(self.out), "ended": ended}
            plain |= {"report": None if page is None else str(page), "runs": len(self.made.runs), "done": done}
            plain |= {"invalid": invalid}
            rows = [dict(zip(HEADINGS, row, strict=True)) for side in sides for row in side.rows()]
            typer.echo(json.dumps(plain | {"rows": rows, "why": why, "faults": faults}))
        elif self.flags.quiet:
            typer.echo(self.out)
        else:
            lines = [f"INVALID  {each}" for each in invalid]
            lines += [*table_lines(sides), *why, *faults] if sides else []
            typer.echo("\n".join([*lines, *([] if page is None else [f"Report   {page}"])]))
        if ended == "interrupted":
            _say(f"interrupted: {done} of {len(self.made.runs)} runs are done; {goes_on}")
            return INTERRUPTED
        return OK if good else ANSWER_IS_NO

    def _faults(self) -> tuple[list[str], bool]:
        """Write the table of faults; return its summary lines, and whether no check of the faults failed."""
        from eunomia_testbed.replay.faults.verdict import write_faults

        plan = self.ready.plan.faults
        return ([], True) if plan is None else write_faults(self.out, self.made.runs, plan)

    def _apart(self) -> list[str]:
        """Write the tables of differences between real and simulated runs, and return their summary lines."""
        from eunomia_testbed.replay.apart import ReplaySides, write_apart
        from eunomia_testbed.replay.results import REAL, SIMULATED
        from eunomia_testbed.results.run_data import RunData

        return write_apart(
            ReplaySides(
                out=self.out,
                plan=self.ready.plan,
                profiles=self.ready.measured.profiles,
                costs=self.ready.costs,
                runs=self.made.runs,
                real=RunData.load(self.out / REAL),
                simulated=RunData.load(self.out / SIMULATED),
            )
        )


# -- small parts


def _check(flags: ReplayFlags) -> None:
    from eunomia_testbed.results.folder import check_out

    if flags.out is not None:
        check_out(flags.out, overwrite=flags.overwrite)
    if flags.trace is None and flags.workload is None:
        raise InputError("a replay must have a trace or --workload", value="neither")
    _check_faults(flags)
    if flags.measure_only and flags.profiles is not None:
        raise InputError("--measure-only must measure, so it takes no --profiles", value=str(flags.profiles))


def _check_faults(flags: ReplayFlags) -> None:
    """Check the flags on faults, before anything is measured."""
    from eunomia_testbed.replay.faults.plan import kinds_of

    kinds_of(flags.fault_kinds)
    alone = {"--fault-seed": flags.fault_seed, "--fault-kinds": flags.fault_kinds}
    given = [name for name, item in alone.items() if item is not None]
    if flags.faults is None and given:
        raise InputError(f"{given[0]} must stand with --faults", value=str(alone[given[0]]))
    if flags.faults is not None and flags.measure_only:
        raise InputError("--measure-only must measure without --faults", value=str(flags.faults))


def _arbiter(flags: ReplayFlags, out: Path | None = None) -> ReplayArbiter:
    """Return where the runs are made; ``out`` is the folder of a replay that goes on."""
    if flags.at is None:
        return own_arbiters(flags)
    from eunomia_testbed.replay.given_arbiter import given_arbiter

    return given_arbiter(flags, flags.at, out)


def _measure_alone(flags: ReplayFlags, arbiter: ReplayArbiter, place: _Place, say: Callable[[str], None]) -> int:
    """Measure the rates and costs that a replay of the trace needs, print them, and return the exit code."""
    from eunomia_testbed.replay.measuring.showing import measured_lines

    draft, _ = drafted(flags, arbiter)
    measured = _measured(draft, arbiter, place, say)
    path = place.folder / MEASURED
    if flags.as_json:
        typer.echo(json.dumps({"schema": "eunomia/measured@1", "profiles": str(path)}))
    elif flags.quiet:
        typer.echo(path)
    else:
        typer.echo("\n".join([*measured_lines(measured), f"Profiles {path}"]))
    return OK


def _measured(draft: Draft, arbiter: ReplayArbiter, place: _Place, say: Callable[[str], None]) -> Measurements:
    """Measure the rates that a draft needs on its slots, and keep them in the replay's folder."""
    from eunomia_testbed.live_runs.this_machine import run_in_this_installation
    from eunomia_testbed.replay.measuring.session import measure

    run_in_this_installation(os.environ)
    wanted, kinds = draft.needed(), arbiter.kinds()  # checked before the folder is made
    out = place.folder
    draft.slots.choose(os.environ)
    say(f"measuring {len(wanted)} settings of {len({each.program for each in wanted})} programs on these slots")
    with terminable():
        changes, make_run = draft.needed_changes(), arbiter.measuring_run(out)
        found = measure(out / MEASURING, wanted, kinds, changes=changes, make_run=make_run, say=say)
    measured = dataclasses.replace(found, machine=arbiter.measured_on)
    (out / MEASURED).write_text(measured.to_toml(), encoding="utf-8")
    return measured


def _none_to_measure(draft: Draft) -> Measurements:
    raise EunomiaError("a replay's folder must keep its profiles", value="none", place=MEASURED)


def _new_folder(flags: ReplayFlags) -> Path:
    from eunomia_testbed.results import ResultFolder, new_folder_name

    name = flags.out or Path("eunomia-out") / new_folder_name("replay", datetime.now(UTC))
    return ResultFolder.create(name, overwrite=flags.overwrite).path.resolve()


def _hash(ready: PreparedReplay) -> str:
    """Return a hash of all that the runs of a replay depend on."""
    from eunomia import __version__
    from eunomia_testbed.running.manifest import workload_hash

    plan = ready.plan
    parts = [__version__, workload_hash(plan.workload), plan.cluster_text, repr(plan.apps), repr(plan.seeds)]
    parts += [f"{name}\n{profile.resolved()}" for name, profile in plan.profiles.items()]
    parts += [ready.measured.to_toml(), *([] if plan.faults is None else [repr(plan.faults)])]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def utc() -> str:
    """Return the current UTC time as ISO 8601 text to the second, as in result folders."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _silent(_line: str) -> None:
    pass
