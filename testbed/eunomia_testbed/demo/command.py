"""``eunomia demo``: runs an arbiter and four apps on this machine, for one to two minutes."""

import contextlib
import dataclasses
import json
import os
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import typer

from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.node import local_machine
from eunomia_appmaster.node.control_groups import choose
from eunomia_testbed.demo.apps_of_demo import app_sources, fitted, settings_for
from eunomia_testbed.demo.flags import DemoFlags
from eunomia_testbed.live_runs.app_source import AppSource
from eunomia_testbed.live_runs.interrupts import ignoring_interrupts
from eunomia_testbed.live_runs.this_machine import cluster_text, run_in_this_installation
from eunomia_testbed.results import InputFile, ResultFolder, RunFacts, new_folder_name
from eunomia_testbed.results.facts import versions_of

ABOUT_SECONDS = 90.0
"""Expected seconds on two cores, for the progress bar."""
LOOK_SECONDS = 0.5
OK, ANSWER_IS_NO, INTERRUPTED = 0, 1, 130
_PACKAGES = ("eunomia", "torch", "numpy", "grpcio", "polars", "scikit-learn")


@with_flags(DemoFlags)
def demo(flags: DemoFlags) -> int:
    """Run four apps on this machine under Themis' auctions, and write a report."""
    from eunomia.platform.profiles import Profile
    from eunomia_appmaster.node.process_logs import configure_logs
    from eunomia_testbed.live_runs.live_run import LiveRun

    configure_logs(level="warning")
    run_in_this_installation(os.environ)
    machine = local_machine.detect(flags.slots, slot_types=flags.slot_types)
    settings = [*settings_for(flags.policy, slots=len(machine.slots)), *(flags.settings or [])]
    seed = flags.seed
    profile = Profile.load(flags.policy, settings=settings)
    name = flags.out or Path("eunomia-out") / new_folder_name("demo", datetime.now(UTC))
    if machine.is_paced:
        choose(name, paced=True).close()  # fails before any file is written; with cgroup v2, it moves this process
    folder = ResultFolder.create(name, overwrite=flags.overwrite)
    on_gpus = bool(machine.slots[0].uuid)
    sources = fitted(app_sources(seed), slots=len(machine.slots), on_gpus=on_gpus)
    facts = _facts(profile, machine, sources, seed)
    folder.write_facts(facts)
    run = LiveRun(
        folder.path,
        sources,
        policy=flags.policy,
        settings=settings,
        slots=flags.slots,
        slot_types=flags.slot_types,
        seed=seed,
    )
    view = _View(profile=profile, machine=machine, seed=seed, run=run, shown=flags.progress and not flags.quiet)
    ended = _watch(run, view)
    facts = dataclasses.replace(facts, ended_at=_utc(), ended=ended)
    return _tell(run, folder, facts, as_json=flags.as_json, quiet=flags.quiet)


def _facts(profile: Any, machine: local_machine.LocalMachine, sources: Sequence[AppSource], seed: int) -> RunFacts:
    return RunFacts(
        kind="demo",
        command=("eunomia", *sys.argv[1:]) if len(sys.argv) > 1 else ("eunomia", "demo"),
        seeds=(seed,),
        profiles={profile.name: profile.resolved()},
        cluster=cluster_text(machine),
        machine=machine.describe(),
        slots=len(machine.slots),
        inputs=tuple(_input(source) for source in sources),
        versions=versions_of(*_PACKAGES),
        started_at=_utc(),
    )


# -- while it runs


class _View:
    """The display of a run on stderr: a live screen on a terminal, otherwise a line for each event."""

    def __init__(self, *, profile: Any, machine: Any, seed: int, run: Any, shown: bool) -> None:
        self._profile = profile
        self._machine = machine
        self._seed = seed
        self._run = run
        self._shown = shown
        self._started_at = time.time()
        self._screen: Any = None
        self._live: Any = None

    @contextlib.contextmanager
    def open(self) -> Iterator[None]:
        """Show the live screen within the block, if stderr is a terminal."""
        from eunomia_testbed.demo.screen import Screen

        heading = _heading(self._profile, self._machine, self._seed)
        if not self._shown:
            yield
        elif not sys.stderr.isatty():
            self._say(heading)
            yield
        else:
            from rich.console import Console
            from rich.live import Live

            self._screen = Screen(
                self._run.record, title=heading, about_seconds=ABOUT_SECONDS, started_at=self._started_at
            )
            with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as self._live:
                yield

    def show(self, look: Any) -> None:
        """Show the current state of the run."""
        if self._live is not None:
            self._live.update(self._screen.draw(look), refresh=True)
        elif self._shown:
            from eunomia_testbed.demo.screen import event_lines

            for line in event_lines(look, self._run.record, self._started_at):
                self._say(line)

    def _say(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


def _watch(run: Any, view: _View) -> str:
    """Run until the end; return ``finished`` or ``interrupted``. SIGTERM counts as Ctrl-C."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with view.open():
            run.start()
            run.submit()
            while not run.is_over:
                view.show(run.look())
                time.sleep(LOOK_SECONDS)
        return "finished"
    except KeyboardInterrupt:
        return "interrupted"
    finally:
        with ignoring_interrupts():  # a second Ctrl-C must not abort the shutdown
            run.stop()
        signal.signal(signal.SIGTERM, before)


# -- at the end


def _tell(run: Any, folder: ResultFolder, facts: RunFacts, *, as_json: bool, quiet: bool) -> int:
    """Write the tables and the report, print the outcome, and return the exit code."""
    from eunomia_testbed.demo.screen import end_lines
    from eunomia_testbed.live_runs.outcome import outcome_of
    from eunomia_testbed.live_runs.tables import Tables
    from eunomia_testbed.report import write_report

    with ignoring_interrupts():
        policy = next(iter(facts.profiles))
        folder.write_facts(facts)
        Tables(run.record, run.samples).write(folder, policy=policy, seed=facts.seeds[0])
        report = write_report(folder.path)
        outcome = outcome_of(run.record)
        run.record.close()
    if as_json:
        plain = {"schema": "eunomia/demo@1", "out": str(folder.path), "report": str(report), "ended": facts.ended}
        typer.echo(json.dumps(plain | outcome.to_json()))
    elif quiet:
        typer.echo(report)
    else:
        typer.echo("\n".join(end_lines(outcome, str(report))))
    if facts.ended == "interrupted":
        return INTERRUPTED
    return OK if outcome.finished == len(outcome.apps) and outcome.apps else ANSWER_IS_NO


# -- small parts


def _heading(profile: Any, machine: local_machine.LocalMachine, seed: int) -> str:
    plugins = tomllib.loads(profile.resolved()).get("plugins", {})
    knobs = [f"f {options['fairness_knob']:g}" for options in plugins.values() if "fairness_knob" in options]
    lease = [] if profile.rounds.lease is None else [f"lease {profile.rounds.lease:g} s"]
    settings = ", ".join([*dict.fromkeys(profile.plugins.values()), *knobs, *lease])
    kinds = Counter(slot.gpu_type for slot in machine.slots)
    slots = f"{' and '.join(f'{count} {kind}' for kind, count in kinds.items())} slots on this machine"
    return f"Eunomia demo    profile {profile.name} ({settings})    {slots}    seed {seed}"


def _input(source: AppSource) -> InputFile:
    import hashlib

    return InputFile(path=source.path.name, sha256=hashlib.sha256(source.text.encode()).hexdigest())


def _utc() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
