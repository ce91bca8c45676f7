"""A training run: the interface between a script and Eunomia."""

import atexit
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch.optim import Optimizer

from eunomia.errors import InputError
from eunomia_appmaster.app.job_checkpoints import CHECKPOINTS_FOLDER, JobCheckpoints
from eunomia_appmaster.training import randomness
from eunomia_appmaster.training.accumulation import Accumulation
from eunomia_appmaster.training.batches import Division
from eunomia_appmaster.training.boundary import Boundary
from eunomia_appmaster.training.commands import Directive
from eunomia_appmaster.training.environment import Environment
from eunomia_appmaster.training.joined import joined
from eunomia_appmaster.training.keeper import Keeper, Snapshot
from eunomia_appmaster.training.kept import ChangedError
from eunomia_appmaster.training.live.swap import Swap
from eunomia_appmaster.training.loader import PreparedLoader
from eunomia_appmaster.training.logbook import STEP_SECONDS_TAG, Logbook, Mean, StepClock, as_number, ordinary_log_dir
from eunomia_appmaster.training.misuse import MisuseError
from eunomia_appmaster.training.place import Place
from eunomia_appmaster.training.preparing import PreparedObjects
from eunomia_appmaster.training.supervision import At, Supervision


def attach(run_dir: str | Path | None = None) -> "Run":
    """Find the app master through the environment and return the run.

    Without an app master, the script runs as an ordinary one: logs go to ``runs/<time>_<host>`` and nothing is
    restored; under ``torchrun``, training is data parallel.

    Args:
        run_dir: folder of logs and checkpoints that makes a run without an app master resumable: SIGTERM saves and
            exits with 75, the next start continues. With an app master, the app's folder is used instead.

    Raises:
        InputError: an environment variable has an invalid value.
    """
    environment = Environment.read()
    if environment.attached and environment.threads is not None:
        # A forked worker has inherited the number of threads of its parent.
        torch.set_num_threads(environment.threads)
    return Run(environment, None if run_dir is None else Path(run_dir))


class Run:
    """One incarnation of a training job in this process; created by ``attach``.

    Attributes:
        device: device of models and batches.
        params: the trial's parameters, by name.
        step: number of optimizer steps since the job began, over all incarnations.
        state: plain values that checkpoints include.
        log_dir: folder of the event files.
        signs: the signs of life of this worker, for the detection of jobs that hang.
    """

    def __init__(self, environment: Environment, run_dir: Path | None) -> None:
        folder = environment.run_dir or run_dir
        self._environment = environment
        if environment.attached and environment.seed is not None:
            randomness.seed_all(environment.seed)
        self.gang, client = joined(environment)
        named = filter(None, [environment.checkpoint])
        store = None if folder is None else JobCheckpoints(folder / CHECKPOINTS_FOLDER, named=named)
        self._keeper = Keeper(self.gang, store, trusted=environment.trust_checkpoints)
        self.device = self.gang.device
        self.params: Mapping[str, Any] = MappingProxyType(dict(environment.params))
        self.step = self._keeper.load(environment.attempt, environment.incarnation)
        self.state = self._keeper.state
        self.log_dir = ordinary_log_dir() if folder is None else folder / "logs"
        self._set_up_logs(resumable=folder is not None)
        self._supervision = Supervision(
            environment, client, gang=self.gang, keeper=self._keeper, logbook=self._logbook, clock=self._clock
        )
        self.signs = self._supervision.signs
        self.accumulation = Accumulation(lambda: self.gang.torn)
        self._prepared = PreparedObjects(
            self.gang, self._keeper, self.accumulation, pace=self, on_forward=self.on_forward, on_step=self._on_step
        )
        self._swap = Swap(
            self.gang, self._keeper, self._supervision, self._logbook, self._log_suffix, self._prepared.loaders
        )
        self._boundary = Boundary(
            self, self.gang, keeper=self._keeper, supervision=self._supervision, swap=self._swap, clock=self._clock
        )
        self._phase = -1
        self._rewind = self._keeper.loaded_step is not None
        self._resumed_passes = self._place.running_passes
        self._joined_passes: set[int] = set()
        # The last step boundary that can be saved, and whether steps were made since it was captured.
        self._snapshot: Snapshot | None = self._keeper.loaded_snapshot()
        self._dirty = False
        # Whether the running loop body has made a step, how many steps were made in all, how many loops are running.
        self._stepped = False
        self._steps_made = 0
        self._running: list[PreparedLoader] = []
        # The state before the last batch of a loop, from which code after the loop is resumed; the step at which
        # `steps` ends; how many steps were made when the epoch, or the pass in `steps`, began.
        self._redo: Snapshot | None = None
        self._goal: int | None = None
        self._steps_before = 0
        atexit.register(self._logbook.close)
        atexit.register(self._supervision.best.write)

    # -- the interface of scripts

    @property
    def rank(self) -> int:
        """The rank of this worker, from 0; it may differ after a live change."""
        return self.gang.rank

    @property
    def world_size(self) -> int:
        """The number of workers; it may differ after a live change."""
        return self.gang.size

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which writes logs and checkpoints."""
        return self.rank == 0

    @property
    def seed(self) -> int:
        """The run's seed: torch's at the first ``prepare``, the same on every worker and in every incarnation."""
        if self._keeper.seed is None:
            self._keeper.seed = int(self.gang.share(torch.initial_seed()))
        return self._keeper.seed

    @property
    def accumulating(self) -> bool:
        """Whether more micro-batches follow before the optimizer steps; clip gradients only if it is False."""
        return self.accumulation.pending

    def prepare(
        self,
        *objects: Any,
        micro_batches: int = 1,
        micro_batch_size: int | None = None,
        ddp: Mapping[str, Any] | None = None,
    ) -> Any:
        """Prepare objects for the run, restore them from the last good checkpoint, and return them in order.

        A model is moved to ``device``, and wrapped in DDP if there are several workers. A ``DataLoader``'s batch size
        is the global batch size, which is split over workers. Optimizer, scheduler, scaler and other objects with
        ``state_dict`` and ``load_state_dict`` are returned unchanged.

        Args:
            objects: all objects that a checkpoint must include, in the same order at every start.
            micro_batches: number of passes in which each worker takes its part of a global batch.
            micro_batch_size: most samples that a worker takes at once; None: ``EUNOMIA_MICRO_BATCH_SIZE``.
            ddp: additional arguments of DDP, such as ``{"find_unused_parameters": True}``.

        Returns:
            The object, or a tuple if there are several.

        Raises:
            MisuseError: an object has no state, or a loader cannot be split.
            EunomiaError: the checkpoint has other objects.
        """
        first = not self._prepared.optimizers and not self._prepared.models and self._keeper.loaded_step is None
        division = Division(
            rank=self.rank,
            workers=self.world_size,
            micro_batches=micro_batches,
            micro_batch_size=micro_batch_size or self._environment.micro_batch_size,
        )
        _ = self.seed
        prepared = tuple(self._prepared.add(each, division, dict(ddp or {})) for each in objects)
        if first and self.rank:
            # Models begin with equal parameters on every worker, but dropout must differ between workers.
            randomness.seed_all(randomness.mix(self.seed, self.rank))
        self._keeper.restore_randomness()
        self._supervision.obey_sigterm()
        return prepared[0] if len(prepared) == 1 else prepared

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the numbers, from 0, of the remaining epochs of ``count``; the first one may resume a checkpoint."""
        if not self._begin_phase(lambda epoch, _step: epoch >= count):
            return
        while self._place.epoch < count and (self._resumed_passes or not self._exhausted):
            self._begin_epoch()
            yield self._place.epoch
            self._resumed_passes.clear()
            self._place.next_epoch()
        self._end_phase()

    def steps(self, loader: PreparedLoader, count: int) -> Iterator[Any]:
        """Yield batches over as many passes as needed, until this loop has made ``count`` optimizer steps.

        Raises:
            InputError: the loader was not prepared (``MisuseError``), or has no batches.
        """
        if not isinstance(loader, PreparedLoader):
            raise MisuseError("steps() must be given a prepared loader", value=type(loader).__name__, place="steps()")
        if not len(loader):
            raise InputError("steps() must be given a loader with batches", value="an empty one", place="steps()")
        if not self._begin_phase(lambda _epoch, step: step >= self._place.phase_start + count):
            return
        goal = self._goal = self._place.phase_start + count
        if not self._resumed_passes:
            self.captured()
        while self.step < goal and not self._exhausted:
            self._steps_before = self._steps_made
            yield from self._pass_until(loader, goal)
            if self.step < goal and not self._exhausted and not self._dirty:
                self._obey(At.LOOP_END, rung=True)
        # With a higher count, a later start continues within this pass.
        loader.place.done = loader.place.handed >= len(loader)
        self._end_phase()
        self._goal = None

    def log(self, values: Mapping[str, Any]) -> None:
        """Log scalars by tag (numbers or tensors of one element) at ``step`` to TensorBoard, on rank 0."""
        if not self.is_main or self.gang.torn:
            return
        numbers = {tag: as_number(value) for tag, value in values.items()}
        piece = self.accumulation.piece
        if not (piece.first and piece.last):
            self._mean.add(numbers, piece.samples)
            if not piece.last:
                return
            numbers = self._mean.take(numbers)
        self._logbook.write(numbers, self.step)
        self._supervision.best.note(numbers, self.step)
        if not self._running:
            # The tuner waits for the metric of an evaluation.
            self._logbook.flush()

    def announce(self, **regime: float) -> None:
        """Announce a new training regime, such as ``batch_size=256``, which is also logged as ``eunomia/batch_size``.

        The arbiter keeps all batch sizes in order, each with its step.

        Raises:
            InputError: the batch size is not a number above 0 and at most 1e15.
        """
        self._supervision.announce(regime, self.step)
        self.log({f"eunomia/{name}": value for name, value in regime.items()})

    # -- the interface of loaders (Pace) and of boundaries (Stepping)

    @property
    def in_loop(self) -> bool:
        """Whether the script is in a loop over a prepared loader."""
        return bool(self._running)

    def evaluates(self) -> bool:
        """Whether there are models, and all are in evaluation mode."""
        models = self._prepared.models
        return bool(models) and not any(model.training for model in models)

    def begin_pass(self, loader: PreparedLoader) -> bool:
        """Begin a loop over a loader; returns whether it continues the pass of the checkpoint."""
        self._begin_loop()
        if self._running:
            self._boundary.stay("it reads two loaders at once")
        resumed = loader.index in self._resumed_passes
        if self._joined_passes:
            self._boundary.check_joined(resumed)
            self._joined_passes, self._rewind = set(), True
        if resumed:
            self._resumed_passes.discard(loader.index)
            self._restore_at_loop()
        loader.steps_before = loader.steps_seen = self._steps_made
        self._running.append(loader)
        self._clock.start()
        return resumed

    def next_batch(self, loader: PreparedLoader) -> bool:
        """End a loop's body: count its step, follow directives, and return whether the loop continues."""
        self._mean.clear()
        self.signs.works()
        if self.gang.torn:
            loader.go_back()
        stepped = self._take_step(loader)
        if loader.place.trains and self._exhausted:
            return False
        if self.gang.broken and self._boundary.mend():
            # Another worker had made the step that this one has lost; with its state, this one counts the step, too.
            self._steps_made += 1
            loader.steps_seen, stepped = self._steps_made, True
            if loader.is_over or self._exhausted or (self._goal is not None and self.step >= self._goal):
                return False
        if stepped:
            self._obey_in_loop()
        elif not self._dirty:
            self._obey(At.BATCH)
        first = self._steps_made == self._steps_before and self._running == [loader]
        if self._resumable and (stepped or first):
            self._redo = self._keeper.capture_copy(self.step) if self._last_ahead else None
        return True

    def end_pass(self, loader: PreparedLoader, *, broken_off: bool) -> None:
        """End a loop; if the worker exits in the code after it, a later start repeats the last step and that code."""
        self._take_step(loader)
        self.signs.else_works()
        self._running.remove(loader)
        if not self._running:
            self._clock.stop()
        if self._steps_made == loader.steps_before or sys.is_finalizing():
            return
        if self._goal is None:
            # Without that state, as after a `break`, orders wait until what follows the loop has run.
            self._snapshot, self._dirty = self._redo, False
        else:
            self.captured()
        if not broken_off:
            self._obey(At.LOOP_END)

    # -- set-up

    @property
    def _place(self) -> Place:
        return self._keeper.place

    def _set_up_logs(self, *, resumable: bool) -> None:
        number = self._keeper.incarnation
        attempt = f".a{self._environment.attempt}" if self._environment.attempt else ""
        self._log_suffix = f"{attempt}.r{number}" if resumable else ""
        self._logbook = Logbook(self.log_dir, suffix=self._log_suffix, active=self.is_main and not self.gang.newcomer)
        if number > 1:
            # The first step that will be logged again.
            self._logbook.purge_step = self.step + 1 if self._keeper.loaded_step is not None else 0
        self._mean = Mean()
        self._clock = StepClock(self.device)

    # -- boundaries

    @property
    def _exhausted(self) -> bool:
        most = self._environment.max_iterations
        return most is not None and self.step >= most

    @property
    def _resumable(self) -> bool:
        return self._keeper.store is not None

    @property
    def _last_ahead(self) -> bool:
        """Whether the next step is predicted to be the last one before other code of the script."""
        ends = [end for end in (self._goal, self._environment.max_iterations) if end is not None]
        if ends and self.step + 1 >= min(ends):
            return True
        return self._goal is None and any(loader.last_ahead for loader in self._running)

    def _on_step(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        self.signs.stepped()
        self._steps_made += 1
        self._stepped = self._dirty = True
        if not self._running:
            self._boundary.stay("its steps are not in a loop over a prepared loader")
        if optimizer is self._prepared.counted:
            self.step += 1
            self._supervision.say_progress_now_and_then(self.step)  # a loop may have no prepared loader

    def _take_step(self, loader: PreparedLoader) -> bool:
        """Return whether the loop body that has ended made a step, and belongs to this loader; if so, count it.

        The end of a loop inside another loop's body is not a step boundary, nor is the end of the second of two loaders
        that are read together.
        """
        made, loader.steps_seen = self._steps_made - loader.steps_seen, self._steps_made
        if not (made and self._stepped):
            return False
        self._stepped = False
        self._swap.stepped()
        loader.took_step()
        loader.place.trains = True
        self._tick()
        return True

    def on_forward(self, training: bool) -> None:
        """Follow directives before a prepared model's forward pass without gradients, outside of loop bodies."""
        (self.signs.works if training and torch.is_grad_enabled() else self.signs.else_works)()
        if not torch.is_grad_enabled() and not self._dirty and self._snapshot is not None:
            self._obey(At.EVALUATION)

    def _begin_phase(self, is_over: Callable[[int, int], bool]) -> bool:
        """Begin one of the script's loops; returns False if the checkpoint is from a later loop."""
        self._begin_loop()
        self._phase += 1
        if self._phase < self._place.phase:
            return False
        if self._phase > self._place.phase:
            self._place.next_phase(self.step)
            self._resumed_passes.clear()
            self._rewind = False
        elif self._rewind and (is_over(self._place.epoch, self.step) or self._exhausted):
            self._go_back_to_redo(is_over)
        self._restore_at_loop()
        return True

    def _go_back_to_redo(self, is_over: Callable[[int, int], bool]) -> None:
        """Repeat the last step of a loop without remaining steps, so that the script's variables have values."""
        redo = self._keeper.redo_at
        if redo is None or is_over(*redo):
            return
        self._keeper.load_redo()
        self.step = self._keeper.loaded_step or 0
        self._resumed_passes = self._place.running_passes
        self._snapshot = self._keeper.loaded_snapshot()

    def _end_phase(self) -> None:
        """End a loop: save a checkpoint regardless of directives, since the loop's work is done."""
        while True:
            snapshot = self.captured()
            # A later start repeats the last step, so that variables of the loop have values after it.
            snapshot.redo = self._redo
            self._supervision.save(snapshot)
            if not self.gang.broken:
                break
            self._boundary.mend()
        self._supervision.say_progress(self.step)
        self._supervision.flush()

    def _begin_loop(self) -> None:
        """Begin a loop; a newcomer of a live gang continues from its peers' state, as from a checkpoint."""
        if self._boundary.begin_loop():
            self._resumed_passes = self._place.running_passes
            self._joined_passes = self._place.running_passes
            # Within a pass, the state that was taken is restored once, as the loop over the pass's batches begins.
            self._rewind = not self._joined_passes
            self._keeper.restore_choices()
            self._snapshot = self._keeper.loaded_snapshot()

    def _begin_epoch(self) -> None:
        self._steps_before = self._steps_made
        if self._resumed_passes:
            return
        self._redo = None
        self.captured()
        self._obey(At.EPOCH, rung=True)

    def _pass_until(self, loader: PreparedLoader, goal: int) -> Iterator[Any]:
        batches = iter(loader)
        for batch in batches:
            yield batch
            if self.step >= goal:
                break
        del batches

    def _restore_at_loop(self) -> None:
        """Undo the script's changes before its loop, since the checkpoint includes them already."""
        if self._rewind:
            self._rewind = bool(self._resumed_passes)
            self._keeper.rewind(forget=not self._rewind)

    def _obey_in_loop(self) -> None:
        """Follow directives at a step boundary inside a loop, where the present state is that of the boundary."""
        directive = self._boundary.directive(At.BATCH)
        leaves = self._leaves(directive, rung=True)
        if leaves or directive.checkpoint:
            self._clock.stop()
            self._do(directive, self.captured(), leaves=leaves)
            self._clock.start()

    def _obey(self, at: At, *, rung: bool = False) -> None:
        """Follow directives outside of loop bodies, with the state of the captured boundary.

        Args:
            at: the polling point.
            rung: whether the run may pause at a rung here; False before the code after the rung's step has logged the
                metric.
        """
        if self._snapshot is None:
            return
        directive = self._boundary.directive(at)
        try:
            self._do(directive, self._snapshot, leaves=self._leaves(directive, rung=rung))
        except ChangedError:
            # The script itself has changed parameters after its loop: wait for the next boundary.
            self._dirty = True

    def _leaves(self, directive: Directive, *, rung: bool) -> bool:
        return directive.suspend or (rung and directive.stop_at is not None and self.step >= directive.stop_at)

    def _do(self, directive: Directive, snapshot: Snapshot, *, leaves: bool) -> None:
        if leaves:
            self._supervision.leave(snapshot)
        if directive.checkpoint:
            self._supervision.save(snapshot)

    def captured(self) -> Snapshot:
        """Capture the present step boundary; the snapshot is valid until the next step."""
        self._snapshot, self._dirty = self._keeper.capture(self.step), False
        return self._snapshot

    def _tick(self) -> None:
        if self._clock.tick() and (self._environment.attached or self._logbook.is_open):
            self._logbook.write({STEP_SECONDS_TAG: self._clock.step_seconds or 0.0}, self.step)
