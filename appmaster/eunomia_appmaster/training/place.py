"""The position of a run in its loops: plain values that every checkpoint includes."""

import copy
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class LoaderPlace:
    """The position of one prepared loader.

    Attributes:
        passes: number of passes over the data begun so far, which seeds the shuffle of each.
        handed: number of global batches of the current pass that were handed out.
        active: whether the current pass belongs to the present epoch.
        done: whether the loop over the current pass has ended.
        trains: whether steps were made on the pass's batches, so that it ends at ``max_iterations``.
        generators: states of the script's own generators when the pass began.
        drawn: states of these generators after the shuffle of the pass was drawn.
    """

    passes: int = 0
    handed: int = 0
    active: bool = False
    done: bool = False
    trains: bool = False
    generators: list[Any] = field(default_factory=list)
    drawn: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class Place:
    """The script's position: its current loop (``phase``), the epoch in that loop, and the batch of each loader."""

    phase: int = 0
    phase_start: int = 0
    epoch: int = 0
    loaders: list[LoaderPlace] = field(default_factory=list)

    def next_epoch(self) -> None:
        """Advance to the next epoch, after an epoch's body has ended."""
        self.epoch += 1
        for loader in self.loaders:
            loader.active = False

    def next_phase(self, step: int) -> None:
        """Advance to the next loop of the script, after one has ended at ``step``."""
        self.phase, self.phase_start, self.epoch = self.phase + 1, step, 0
        for loader in self.loaders:
            loader.active = False

    @property
    def running_passes(self) -> set[int]:
        """Return the indices of the loaders whose pass of the present epoch has begun."""
        return {index for index, loader in enumerate(self.loaders) if loader.active}

    def loader(self, index: int) -> LoaderPlace:
        """Return the position of the loader that was prepared as number ``index``, from 0."""
        while len(self.loaders) <= index:
            self.loaders.append(LoaderPlace())
        return self.loaders[index]

    def to_plain(self) -> dict[str, Any]:
        """Return a copy as plain values."""
        return copy.deepcopy(asdict(self))

    def load(self, plain: dict[str, Any]) -> None:
        """Restore the values of ``to_plain``, in place, since loaders keep references to their ``LoaderPlace``."""
        self.phase, self.phase_start, self.epoch = plain["phase"], plain["phase_start"], plain["epoch"]
        for index, values in enumerate(plain["loaders"]):
            loader = self.loader(index)
            for name, value in values.items():
                setattr(loader, name, value)
