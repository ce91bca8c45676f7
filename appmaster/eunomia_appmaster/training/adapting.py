"""Batch sizes that a run adapts by Accordion's rule or by the gradient noise scale (Shockwave, §5).

A rule reads gradients, decides at the beginning of an epoch, and announces each change (``run.announce``). Its whole
state is in checkpoints, so that a run suspended within an epoch makes the same steps as an uninterrupted one.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from eunomia_appmaster.training.loader import PreparedLoader
from eunomia_appmaster.training.misuse import MisuseError
from eunomia_appmaster.training.noise import NoiseScale
from eunomia_appmaster.training.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Accordion:
    """Accordion's rule (Agarwal et al., MLSys'21): small batches in critical regimes, large ones otherwise.

    A regime is critical until the second check; later, if the norm of the gradient, averaged over an epoch's samples,
    has changed by the fraction ``change`` or more since the last check, or if the script has lowered the learning rate
    since then.

    Attributes:
        small: global batch size in critical regimes, and at the start.
        large: global batch size otherwise.
        every: number of epochs between two checks.
        change: relative change of the gradient's norm that makes a regime critical.
        scale_rate: whether the learning rate is scaled with the batch size.
    """

    small: int
    large: int
    every: int = 10
    change: float = 0.5
    scale_rate: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            MisuseError: small or large is not a whole number, small is not below large, or every or change is invalid.
        """
        _check(self.small, self.large, least=1, place="Accordion()")
        if isinstance(self.every, bool) or not isinstance(self.every, int) or self.every < 1:
            rule = "every must be a whole number of epochs above 0"
            raise MisuseError(rule, value=repr(self.every), place="Accordion()")
        if not 0.0 < self.change < math.inf:
            raise MisuseError("change must be a fraction above 0", value=repr(self.change), place="Accordion()")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the batch sizes in samples, smallest first."""
        return self.small, self.large


@dataclass(frozen=True, slots=True, kw_only=True)
class Gns:
    """The rule of the gradient noise scale: the batch size doubles while the scale is at least twice the size.

    The batch size never decreases. The noise scale is estimated from gradients of two batch sizes: the global batch,
    and each worker's part before gradients are averaged. A gang of one worker takes each batch in two pieces whose
    gradients add up.

    Attributes:
        small: global batch size at the start, at least 2.
        large: largest global batch size; sizes are ``small`` times powers of two up to it.
        smoothing: weight of the past in the running means of the estimates, per step.
        scale_rate: whether the learning rate is scaled with the batch size.
    """

    small: int
    large: int
    smoothing: float = 0.95
    scale_rate: bool = True

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            MisuseError: small or large is not a whole number, small is not below large, or smoothing is outside of 0 to
                1.
        """
        _check(self.small, self.large, least=2, place="Gns()")
        if not 0.0 <= self.smoothing < 1.0:
            raise MisuseError("smoothing must be at least 0 and below 1", value=repr(self.smoothing), place="Gns()")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Return the batch sizes in samples, smallest first."""
        return tuple(self.small << doublings for doublings in range((self.large // self.small).bit_length()))


def _check(small: object, large: object, *, least: int, place: str) -> None:
    whole = all(isinstance(size, int) and not isinstance(size, bool) for size in (small, large))
    if not whole or not least <= small < large:  # type: ignore[operator]
        rule = f"small and large must be whole numbers of samples, small at least {least} and large above it"
        raise MisuseError(rule, value=f"{small!r}, {large!r}", place=place)


class AdaptiveBatches(ABC):
    """Loaders of one data set, one per batch size of a rule; created by ``adaptive``.

    Attributes:
        batch_size: global batch size of the present epoch, in samples.
        epoch: the epoch for which ``batch_size`` was decided; -1: none yet.
    """

    def __init__(self, run: Run, optimizer: Optimizer, loaders: dict[int, PreparedLoader], *, scale_rate: bool) -> None:
        self._run, self._optimizer, self._loaders, self._scale_rate = run, optimizer, loaders, scale_rate
        self.batch_size = min(loaders)
        self.epoch = -1

    def of(self, epoch: int) -> Iterator[Any]:
        """Yield an epoch's batches; the rule decides their size before the first one, and announces a change.

        Args:
            epoch: number of the epoch, from ``run.epochs``.
        """
        if epoch != self.epoch:  # a run that resumes within an epoch has decided already
            self._change(self._decided(epoch))
            self.epoch = epoch
        yield from self._loaders[self.batch_size]

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"batch_size": self.batch_size, "epoch": self.epoch, **self._measured()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state from a checkpoint.

        Raises:
            MisuseError: the rule no longer has the batch size of the checkpoint.
        """
        if state["batch_size"] not in self._loaders:
            rule = f"the batch size of a checkpoint must be one of {', '.join(map(str, sorted(self._loaders)))}"
            raise MisuseError(rule, value=str(state["batch_size"]), place="adaptive batches")
        self.batch_size, self.epoch = state["batch_size"], state["epoch"]
        self._restore(state)

    @abstractmethod
    def _decided(self, epoch: int) -> int:
        """Return the batch size of the next epoch, from the measurements before it."""

    @abstractmethod
    def _measured(self) -> dict[str, Any]:
        """Return the rule's state for a checkpoint."""

    @abstractmethod
    def _restore(self, state: dict[str, Any]) -> None:
        """Restore the rule's state from a checkpoint."""

    def _change(self, batch_size: int) -> None:
        if batch_size == self.batch_size:
            return
        if self._scale_rate:
            for group in self._optimizer.param_groups:
                group["lr"] *= batch_size / self.batch_size
        self.batch_size = batch_size
        self._run.announce(batch_size=batch_size)


class AccordionBatches(AdaptiveBatches):
    """Batches whose size follows ``Accordion``."""

    def __init__(self, run: Run, optimizer: Optimizer, loaders: dict[int, PreparedLoader], rule: Accordion) -> None:
        super().__init__(run, optimizer, loaders, scale_rate=rule.scale_rate)
        self._rule = rule
        self._sum: list[torch.Tensor] = []
        self._samples = 0
        self._last = math.nan
        self._rate = self._own_rate()
        optimizer.register_step_pre_hook(self._add)

    def _decided(self, epoch: int) -> int:
        decided = self.batch_size
        if epoch and epoch % self._rule.every == 0:
            decided = self._checked()
        self._sum, self._samples = [], 0
        return decided

    def _checked(self) -> int:
        """Return the batch size after a check of the mean gradient's norm in the last epoch."""
        norm = math.sqrt(sum(float(part.square().sum()) for part in self._sum)) / max(self._samples, 1)
        # Rank 0 decides: a restored worker may have added the same numbers in another order.
        norm, rate = self._run.gang.share((norm, self._own_rate()))
        lowered = rate < self._rate * (1.0 - 1e-6)
        # Not a number: nothing was measured before, or the gradient overflowed.
        steady = abs(self._last - norm) < self._rule.change * self._last
        self._last, self._rate = norm, rate
        self._run.log({"accordion/gradient_norm": norm})
        return max(self._loaders) if steady and not lowered else min(self._loaders)

    def _own_rate(self) -> float:
        """Return the script's learning rate, without its scaling by batch size."""
        scale = self.batch_size / min(self._loaders) if self._scale_rate else 1.0
        return float(self._optimizer.param_groups[0]["lr"]) / scale

    def _add(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        """Add a step's gradient, weighted by the number of samples of its batch."""
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        if not self._sum:
            self._sum = [torch.zeros_like(each) for each in gradients]
        for total, each in zip(self._sum, gradients, strict=True):
            total.add_(each.detach(), alpha=self.batch_size)
        self._samples += self.batch_size

    def _measured(self) -> dict[str, Any]:
        return {"sum": self._sum, "samples": self._samples, "last": self._last, "rate": self._rate}

    def _restore(self, state: dict[str, Any]) -> None:
        self._sum = [part.to(self._run.device) for part in state["sum"]]
        self._samples, self._last, self._rate = state["samples"], state["last"], state["rate"]


class GnsBatches(AdaptiveBatches):
    """Batches whose size follows ``Gns``."""

    def __init__(
        self, run: Run, optimizer: Optimizer, loaders: dict[int, PreparedLoader], rule: Gns, scale: NoiseScale
    ) -> None:
        super().__init__(run, optimizer, loaders, scale_rate=rule.scale_rate)
        self._noise = scale
        optimizer.register_step_pre_hook(self._note)

    def noise_scale(self) -> float:
        """Return the current noise scale in samples; NaN: no estimate yet. A collective call of all workers."""
        return float(self._run.gang.share(self._noise.value()))

    def _decided(self, epoch: int) -> int:
        scale = self.noise_scale()
        if not epoch or not math.isfinite(scale):
            return self.batch_size
        self._run.log({"gns/noise_scale": scale})
        larger = 2 * self.batch_size
        return larger if larger in self._loaders and scale >= larger else self.batch_size

    def _note(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        gradients = [each.grad for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
        self._noise.step(gradients)

    def _measured(self) -> dict[str, Any]:
        return self._noise.state()

    def _restore(self, state: dict[str, Any]) -> None:
        self._noise.restore(state)


def adaptive(
    run: Run, model: nn.Module, optimizer: Optimizer, data: Any, rule: Accordion | Gns, **loader: Any
) -> tuple[nn.Module, Optimizer, AdaptiveBatches]:
    """Prepare a model, an optimizer and batches whose global size a rule changes between epochs.

    Args:
        run: the run, from ``training.attach``.
        model: the model.
        optimizer: the model's; under ``Gns``, gradients must be neither clipped nor scaled before the optimizer's step.
        data: the data set.
        rule: an ``Accordion`` or a ``Gns``.
        loader: additional arguments of ``DataLoader``, such as ``shuffle=True``.

    Returns:
        The prepared model and optimizer, and the batches: ``for x, y in batches.of(epoch)``.
    """
    pieces = 2 if isinstance(rule, Gns) and (run.world_size == 1 or run.gang.live) else 1
    model, optimizer = run.prepare(model, optimizer, micro_batches=pieces)
    loaders = {
        size: run.prepare(DataLoader(data, batch_size=size, **loader), micro_batches=pieces) for size in rule.sizes
    }
    made: AdaptiveBatches
    if isinstance(rule, Gns):
        scale = NoiseScale(model, run, smoothing=rule.smoothing)
        made = GnsBatches(run, optimizer, loaders, rule, scale)
    else:
        made = AccordionBatches(run, optimizer, loaders, rule)
    run.prepare(made)
    return model, optimizer, made
