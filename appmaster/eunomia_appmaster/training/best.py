"""Keeps the state with the best value of the tuner's metric, in ``best/`` next to the job's checkpoints.

The checkpoint has the registered objects' states from when the metric was logged, and the step and value of that log
entry (docs/decisions/0185-the-best-checkpoint.md). Only rank 0 writes it, without a collective call.
"""

import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import torch

from eunomia.errors import InputError
from eunomia_appmaster.app.checkpoints import Checkpoint, CheckpointError
from eunomia_appmaster.app.job_checkpoints import JobCheckpoints
from eunomia_appmaster.training.keeper import FORMAT, Keeper, Snapshot

PART_OF_TIME = 1 / 20
"""Largest fraction of the run's time for which training may pause for copies, and likewise for writes."""

FREE_SECONDS = 2.0


class BestKeeper:
    """The best checkpoint of a job.

    Args:
        keeper: the keeper of the registered objects whose states are saved.
        store: the store of the best checkpoint; None: no best checkpoint is kept.
        metric: TensorBoard tag that the search optimises; None: there is none.
        mode: "max" or "min".
        free_seconds: seconds of copies, and likewise of writes, that do not count towards ``PART_OF_TIME``.
    """

    def __init__(
        self,
        keeper: Keeper,
        store: JobCheckpoints | None,
        metric: str | None,
        mode: str,
        *,
        free_seconds: float = FREE_SECONDS,
    ) -> None:
        self._keeper = keeper
        self._store = store if metric else None
        self._metric = metric or ""
        self._sign = -1.0 if mode == "min" else 1.0
        self._best: float | None = None
        self._known = False
        self._unsaved: tuple[Snapshot, float] | None = None
        self._copies, self._writes = _Share(free_seconds), _Share(free_seconds)

    def note(self, values: Mapping[str, float], step: int) -> None:
        """Process the values logged at a step: if the metric is the best so far, copy the present state."""
        value = values.get(self._metric, math.nan)
        if self._store is None or self._keeper.gang.rank or not math.isfinite(value):
            return
        if self._is_better(value) and self._copies.may_go_on():
            self._best = value
            with self._copies:
                self._unsaved = self._keeper.capture_copy(step), value
        if self._writes.may_go_on():
            self.write()

    def take_over(self) -> None:
        """Take over as rank 0 from another worker, which may already have kept a better state."""
        self._known = False
        if self._store is not None:
            self._store.fence = None

    def write(self) -> None:
        """Write the best state unless it has been written; a failed write does not end the training."""
        if self._store is None or self._unsaved is None or self._keeper.gang.rank:
            return
        snapshot, value = self._unsaved
        try:
            payload = self._keeper.plain(self._keeper.alone(snapshot))
            payload |= {"format": FORMAT, "metric": {self._metric: value}}
            with self._writes:
                self._begin(self._store)
                self._store.save(
                    snapshot.step,
                    lambda path: torch.save(payload, path),
                    incarnation=self._keeper.incarnation,
                    metric=value,
                )
        except (OSError, RuntimeError, CheckpointError, InputError) as error:
            sys.stderr.write(f"eunomia: the best checkpoint was not written: {error}\n")
        self._unsaved = None

    def _begin(self, store: JobCheckpoints) -> None:
        """Make this incarnation the store's writer, under the fence of the job's checkpoints; once per writer."""
        of_job = None if self._keeper.store is None else self._keeper.store.fence
        if store.fence is None:
            attempt = None if of_job is None else of_job.attempt
            store.begin(attempt, self._keeper.incarnation, adopt=False)

    def _is_better(self, value: float) -> bool:
        if not self._known and self._store is not None:
            self._known, before = True, kept(self._store)
            self._best = None if before is None else before.metric
        return self._best is None or self._sign * value > self._sign * self._best


def kept(store: JobCheckpoints) -> Checkpoint | None:
    """Return the newest good checkpoint of a store if it has a metric; else None."""
    newest = store.latest()
    return newest if newest is not None and newest.metric is not None else None


class _Share:
    """Limits work to a fraction of the time, in addition to some seconds that are always allowed."""

    def __init__(self, free_seconds: float) -> None:
        self._since = time.monotonic()
        self._free = free_seconds
        self._spent = 0.0
        self._began = 0.0

    def may_go_on(self) -> bool:
        return self._spent <= self._free + PART_OF_TIME * (time.monotonic() - self._since)

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: Any) -> None:
        self._spent += time.monotonic() - self._began
