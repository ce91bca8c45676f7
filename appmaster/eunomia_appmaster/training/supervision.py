"""A run's side of the app master's protocol: directives, checkpoints, suspension, progress reports."""

import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from enum import IntEnum
from typing import Any, NoReturn

import torch

from eunomia.errors import InputError
from eunomia.model.adaptations import MOST_BATCH_SIZE, is_batch_size
from eunomia_appmaster.app.job_checkpoints import BEST_FOLDER, JobCheckpoints
from eunomia_appmaster.node.lenient_output import be_lenient
from eunomia_appmaster.node.process_name import name_worker
from eunomia_appmaster.training.best import BestKeeper
from eunomia_appmaster.training.commands import Commands, Directive
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.joined import Orders
from eunomia_appmaster.training.keeper import Keeper, Snapshot
from eunomia_appmaster.training.leaving import end_process
from eunomia_appmaster.training.live.change_orders import ChangeOrders
from eunomia_appmaster.training.logbook import Logbook, StepClock
from eunomia_appmaster.training.signs import Signs

ALONE_CHECKPOINT_SECONDS = 60.0
PROGRESS_SECONDS = 1.0


class At(IntEnum):
    """The polling points at which workers get directives; all workers of a gang must poll at the same point."""

    BATCH = 0
    EVALUATION = 1
    EPOCH = 2
    LOOP_END = 3


class Supervision:
    """Polls for directives, and saves, suspends and reports for a run.

    A run without a folder for checkpoints ignores directives.
    """

    def __init__(
        self,
        environment: Environment,
        client: Orders | None,
        *,
        gang: Gang,
        keeper: Keeper,
        logbook: Logbook,
        clock: StepClock,
    ) -> None:
        name_worker()
        container = environment.container_dir
        if container is not None:
            be_lenient()
        self._gang = gang
        self._keeper = keeper
        self._logbook = logbook
        self._clock = clock
        store = None if keeper.store is None else JobCheckpoints(keeper.store.folder.with_name(BEST_FOLDER), keep=1)
        self.best = BestKeeper(keeper, store, environment.metric, environment.metric_mode)
        self.signs = Signs(container)
        gang.on_wait = self.signs.waits
        self._client = client
        self._obeys = keeper.store is not None
        self._progress_said, self._step_said = 0.0, 0
        self._saved_said: int | None = None
        alone = self._obeys and not environment.attached
        every = environment.checkpoint_every_seconds or (ALONE_CHECKPOINT_SECONDS if alone else None)
        if isinstance(client, ChangeOrders):
            client.signalled = lambda: self._commands.leaving
        self._commands = Commands(
            self._client, stop_at=environment.stop_at, every_seconds=every, set_threads=torch.set_num_threads
        )

    def obey_sigterm(self) -> None:
        """Treat SIGTERM as a suspend order from now on, when there is state to save."""
        if self._obeys:
            self._commands.obey_sigterm()

    def directive(self, at: At, step: int) -> Directive:
        """Return the gang's directive; a collective call of all workers at the same polling point.

        Raises:
            EunomiaError: another worker is at another polling point.
        """
        if not self._obeys:
            return Directive()
        directive = self._commands.collect()
        if self._gang.alone:
            return replace(directive, generation=self._gang.newest)
        return self._agreed(directive, step * len(At) + at)

    def save(self, snapshot: Snapshot) -> None:
        """Write a checkpoint, unless it is written already; a collective call of all workers.

        Raises:
            ChangedError: something other than a step has changed parameters since the capture.
        """
        if self._keeper.store is None:
            return
        unsaved, ordered = not snapshot.saved, self._commands.ordered
        if unsaved:
            self.best.write()
            # A resume does not log values up to this step again, so they must be on the disk, too.
            self._logbook.flush()
        with self.signs.checkpoint():
            self._keeper.save(snapshot)
        self._commands.saved(snapshot.captured_at if unsaved else None)
        if self._gang.rank == 0 and (ordered or snapshot.step != self._saved_said):
            self._saved_said = snapshot.step
            self.say("saved", {"step": snapshot.step})

    def leave(self, snapshot: Snapshot) -> NoReturn:
        """Save a checkpoint, acknowledge the order, and exit with code 75.

        Raises:
            ChangedError: something other than a step has changed parameters since the capture.
        """
        self.save(snapshot)
        self.best.write()
        self.say_progress(snapshot.step)
        self._logbook.close()
        if self._gang.rank == 0:
            sys.stderr.write(f"eunomia: left at step {snapshot.step}, to go on from its checkpoint\n")
        self.say("suspended", {"step": snapshot.step})
        self.flush()
        end_process("")

    def go(self, kind: str, content: dict[str, Any], why: str) -> NoReturn:
        """Leave a gang that continues without this worker: send a message, and exit with 75, without a checkpoint."""
        self.best.write()
        self._logbook.close()
        self.say(kind, content)
        self.flush()
        end_process(why)

    def say(self, kind: str, content: dict[str, Any]) -> None:
        """Send a message to the launcher, if there is one."""
        if self._client is not None:
            self._client.say(kind, content)

    def announce(self, regime: Mapping[str, float], step: int) -> None:
        """Report a new training regime after the step at which it begins; NumPy's and torch's numbers are accepted.

        Raises:
            InputError: the batch size is not a number above 0 and at most 1e15.
        """
        plain = {name: value.item() if hasattr(value, "item") else value for name, value in regime.items()}
        if "batch_size" in plain and not is_batch_size(plain["batch_size"]):
            rule = f"batch_size must be a number above 0, at most {MOST_BATCH_SIZE:g}"
            raise InputError(rule, value=repr(plain["batch_size"]), place="announce")
        self.say_progress(step)
        self.say("announce", plain)

    def say_progress(self, step: int) -> None:
        """Report rank 0's step and speed; without a loop over a prepared loader, the speed since the last report."""
        now, speed = time.monotonic(), self._clock.step_seconds
        if speed is None and self._progress_said and step > self._step_said:
            speed = (now - self._progress_said) / (step - self._step_said)
        self._progress_said, self._step_said = now, step
        if self._gang.rank == 0:
            self.say("progress", {"step": step, "seconds_per_step": speed})

    def say_progress_now_and_then(self, step: int) -> None:
        """Report the progress at most once per second."""
        if time.monotonic() - self._progress_said >= PROGRESS_SECONDS:
            self.say_progress(step)

    def flush(self) -> None:
        """Flush logs to the disk and messages to the launcher."""
        self._logbook.flush()
        if self._client is not None:
            self._client.flush()

    def _agreed(self, directive: Directive, place: int) -> Directive:
        # Only rank 0 knows rungs and periodic checkpoints; a suspend order may reach any worker first.
        main = self._gang.rank == 0
        stop_at = directive.stop_at + 1 if main and directive.stop_at is not None else 0
        wanted = [directive.suspend, main and directive.checkpoint, stop_at, place, -place, -self._gang.newest]
        agreed = self._gang.highest(wanted)
        self._gang.check_same_place(place, agreed[3], -agreed[4])
        return Directive(
            suspend=bool(agreed[0]),
            checkpoint=bool(agreed[1]),
            stop_at=agreed[2] - 1 if agreed[2] else None,
            generation=-agreed[5],
        )
