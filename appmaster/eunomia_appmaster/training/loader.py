"""A prepared data loader: the same batches for any number of workers, and a position that checkpoints include."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, cast

import torch
from torch.utils.data import DataLoader, IterableDataset, SequentialSampler
from torch.utils.data.distributed import DistributedSampler

from eunomia_appmaster.training import randomness
from eunomia_appmaster.training.accumulation import Accumulation
from eunomia_appmaster.training.batches import Division, Piece, divide
from eunomia_appmaster.training.misuse import MisuseError
from eunomia_appmaster.training.place import LoaderPlace
from eunomia_appmaster.training.signs import Signs


class Pace(Protocol):
    """The part of a run that a loader calls at step boundaries; a protocol."""

    device: torch.device
    signs: Signs
    """Signs of life of this worker."""

    @property
    def seed(self) -> int:
        """The run's seed, the same on every worker."""
        ...

    def begin_pass(self, loader: "PreparedLoader") -> bool:
        """Begin a loop; returns whether it continues a pass from a checkpoint."""
        ...

    def next_batch(self, loader: "PreparedLoader") -> bool:
        """Return whether the loop gets another batch; does not return if the worker exits."""
        ...

    def end_pass(self, loader: "PreparedLoader", *, broken_off: bool) -> None:
        """End the loop: it has no more batches, or the script left it by ``break`` (``broken_off``)."""
        ...

    def evaluates(self) -> bool:
        """Whether every prepared model is in evaluation mode."""
        ...


class PreparedLoader:
    """Replaces the script's ``DataLoader``, whose ``batch_size`` is the global batch size.

    A training loop yields this worker's pieces of each global batch. A loop without gradients, or over unshuffled data
    while all models are in evaluation mode, yields whole batches on every worker. All other attributes are those of the
    original loader.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        *,
        index: int,
        place: LoaderPlace,
        division: Division,
        accumulation: Accumulation,
        pace: Pace,
    ) -> None:
        _check(loader)
        self._loader = loader
        self._division = division
        self._accumulation = accumulation
        self._pace = pace
        self._plan = _Plan()
        self._replan = False
        self._feed = _feed(loader, self._plan)
        self._generators = _own_generators(loader)
        self._restored = place.passes > 0
        self.index = index
        self.place = place
        # How many steps the run had made when the pass began, and when a batch was last requested.
        self.steps_before = 0
        self.steps_seen = 0
        # Number of batches in the current pass, of batches that the last step took, and of those handed out by then.
        self._total = 0
        self.batches_a_step = 1
        self.handed_at_step = 0

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def last_ahead(self) -> bool:
        """Whether the next step is the last of this pass, if it takes as many batches as the previous step."""
        return 0 < self._total - self.place.handed <= self.batches_a_step

    @property
    def is_over(self) -> bool:
        """Whether all batches of the current pass were handed out."""
        return self.place.done or self.place.handed >= self._total

    def took_step(self) -> None:
        """Record that a step was made with the batches handed out since the previous step."""
        self.batches_a_step = max(1, self.place.handed - self.handed_at_step)
        self.handed_at_step = self.place.handed

    def redivide(self, rank: int, workers: int) -> None:
        """Divide the remaining batches over another number of workers; pieces that were fetched early are dropped."""
        self._division = replace(self._division, rank=rank, workers=workers)
        self._replan = True

    def go_back(self) -> None:
        """Hand out again the batches since the last step, whose gradient was lost."""
        self.place.handed = self.handed_at_step
        self._replan = True

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        if self._gives_whole():
            return self._whole_pass()
        return self._training_pass()

    def _whole_pass(self) -> Iterator[Any]:
        for batch in self._loader:
            self._pace.signs.else_works()
            yield to_device(batch, self._pace.device)

    def _gives_whole(self) -> bool:
        if not torch.is_grad_enabled():
            return True
        return isinstance(self._loader.sampler, SequentialSampler) and self._pace.evaluates()

    def _training_pass(self) -> Iterator[Any]:
        self._begin()
        try:
            yield from self._pieces(self._draw()[self.place.handed :])
        except GeneratorExit:
            self._end(broken_off=True)
            raise
        self._end(broken_off=False)

    def _begin(self) -> None:
        place = self.place
        restored, self._restored = self._restored, False
        if self._pace.begin_pass(self):
            self._set_generators(place.generators)
            return
        if restored:
            self._set_generators(place.drawn)
        place.passes += 1
        place.handed, place.active, place.done = 0, True, False
        place.generators = [generator.get_state() for generator in self._generators]

    def _set_generators(self, states: list[torch.Tensor]) -> None:
        for generator, state in zip(self._generators, states, strict=False):
            generator.set_state(state)

    def _end(self, *, broken_off: bool) -> None:
        self._accumulation.end()
        self.place.done = True
        self._pace.end_pass(self, broken_off=broken_off)

    def _draw(self) -> list[list[Any]]:
        """Return the indices of the pass's global batches, the same on every worker and after a resume."""
        sampler = self._loader.batch_sampler
        if hasattr(self._loader.sampler, "set_epoch"):
            self._loader.sampler.set_epoch(self.place.passes - 1)
        with randomness.seeded(randomness.mix(self._pace.seed, self.index, self.place.passes)):
            batches = [list(batch) for batch in cast("Sequence[Sequence[Any]]", sampler)]
        self.place.drawn = [generator.get_state() for generator in self._generators]
        return [] if self.place.done else batches

    def _pieces(self, batches: list[list[Any]]) -> Iterator[Any]:
        before = self.place.handed
        self._total = before + len(batches)
        self.handed_at_step = before
        divided, data = self._fed(batches)
        while (divided or self._accumulation.is_torn()) and self._pace.next_batch(self):
            if self._replan:
                divided, data = self._fed(batches[self.place.handed - before :])
            if not divided:
                return
            self.place.handed += 1
            for piece in divided.pop(0):
                self._accumulation.begin(piece)
                fetched = to_device(next(data), self._pace.device)
                self._pace.signs.else_works()  # the script may do anything with it before its forward pass
                yield fetched

    def _fed(self, batches: list[list[Any]]) -> tuple[list[list[Piece]], Iterator[Any]]:
        """Return this worker's pieces of global batches, and their data."""
        self._replan = False
        divided = [divide(batch, self._division) for batch in batches]
        self._plan.pieces = [piece for pieces in divided for piece in pieces]
        generator = cast("torch.Generator", self._feed.generator)
        generator.manual_seed(randomness.mix(self._pace.seed, self.index, self.place.passes, self.place.handed))
        return divided, iter(self._feed) if divided else iter(())


class _Plan:
    """The pieces of the current pass, as a batch sampler for the loader that fetches their data."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def __iter__(self) -> Iterator[list[Any]]:
        return (piece.indices for piece in self.pieces)

    def __len__(self) -> int:
        return len(self.pieces)


class _WorkerStart:
    """Initialises a loader's worker process: it ignores SIGTERM to the process group, which the trainer handles."""

    def __init__(self, script_init: Any) -> None:
        self._script_init = script_init

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if self._script_init is not None:
            self._script_init(worker)


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a batch with its tensors on the device, also those in lists, tuples, named tuples and mappings."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch


def _feed(loader: DataLoader[Any], plan: _Plan) -> DataLoader[Any]:
    """Return a loader like the script's, but with its own generator: resuming must not advance the global generator."""
    return DataLoader(
        loader.dataset,
        batch_sampler=cast("Any", plan),
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=_WorkerStart(loader.worker_init_fn) if loader.num_workers else None,
        multiprocessing_context=loader.multiprocessing_context,
        generator=torch.Generator(),
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )


def _own_generators(loader: DataLoader[Any]) -> list[torch.Generator]:
    holders = (loader, loader.sampler, loader.batch_sampler)
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


def _check(loader: DataLoader[Any]) -> None:
    if isinstance(loader.dataset, IterableDataset) or loader.batch_sampler is None:
        rule = "a prepared loader must have a dataset with indices and a batch size, or be left out of prepare()"
        raise MisuseError(rule, value=type(loader.dataset).__name__, place="prepare()")
    samplers = (loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    if any(isinstance(sampler, DistributedSampler) for sampler in samplers):
        rule = "a prepared loader must hold the whole data, since prepare() splits it over the workers"
        raise MisuseError(rule, value="a DistributedSampler", place="prepare()")
