"""Makes the gradients of all workers' micro-batches add up to the gradient of the whole global batch.

There are two mechanisms, both inactive if one worker takes whole batches: hooks on the parameters weight each piece's
gradient, and gates skip ``optimizer.step()``, ``zero_grad()``, ``scheduler.step()`` and a scaler's calls until the last
piece of a global batch, so that the script's loop stays unchanged.
"""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from eunomia_appmaster.training.batches import Piece

_WHOLE = Piece(indices=[], samples=1, weight=1.0, first=True, last=True)


class Accumulation:
    """Tracks the piece of a global batch that is being computed.

    Args:
        is_torn: returns whether the present batch's gradient is lost, because a peer was lost, so that no step is made.
    """

    def __init__(self, is_torn: Callable[[], bool] = lambda: False) -> None:
        self.is_torn = is_torn
        self.piece = _WHOLE
        self._gradient_came = False
        self._models: list[Any] = []
        self._unsynchronised = contextlib.ExitStack()

    @property
    def pending(self) -> bool:
        """Whether more pieces of the same global batch follow before the optimizer steps."""
        return not self.piece.last

    def begin(self, piece: Piece) -> None:
        """Begin a piece; called before the script computes it."""
        self._unsynchronised.close()
        self.piece = piece
        self._gradient_came = False
        if not piece.last:
            for model in self._models:
                self._unsynchronised.enter_context(model.no_sync())

    def end(self) -> None:
        """End the loop over batches."""
        self.begin(_WHOLE)

    def weigh(self, model: nn.Module) -> None:
        """Weight the gradients of a model's parameters by the current piece's weight."""
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self._weigh)  # type: ignore[no-untyped-call]
        if hasattr(model, "no_sync"):
            self._models.append(model)

    def gate_model(self, model: nn.Module) -> None:
        """Make ``model.zero_grad()`` act only at the beginning or the end of a global batch."""
        _gate(model, "zero_grad", self._may_clear)

    def gate_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Make ``step()`` act only after the last piece, and ``zero_grad()`` only at a global batch's start or end."""
        _gate(optimizer, "step", self._complete)
        _gate(optimizer, "zero_grad", self._may_clear)

    def gate_other(self, thing: Any) -> None:
        """Make a scheduler's ``step()`` and a scaler's methods act only after the last piece."""
        if isinstance(thing, torch.optim.lr_scheduler.LRScheduler):
            _gate_scheduler(thing, self._complete)
        elif hasattr(thing, "unscale_"):
            for name in ("step", "update", "unscale_"):
                _gate(thing, name, self._complete)

    def _weigh(self, gradient: torch.Tensor) -> torch.Tensor | None:
        self._gradient_came = True
        weight = self.piece.weight
        if weight == 1.0:
            return None
        # Zero times an infinite gradient would be NaN.
        return gradient * weight if weight else torch.zeros_like(gradient)

    def _complete(self) -> bool:
        return self.piece.last and not self.is_torn()

    def _may_clear(self) -> bool:
        """Return whether gradients may be cleared: before the first piece's gradient or after the last piece's."""
        if self._gradient_came:
            return self.piece.last
        return self.piece.first


def _gate(thing: Any, name: str, is_open: Callable[[], bool]) -> None:
    method = getattr(thing, name)

    # Wrapping keeps the attributes by which schedulers recognise an optimizer's `step`.
    @functools.wraps(method)
    def gated(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs) if is_open() else None

    setattr(thing, name, gated)


def _gate_scheduler(scheduler: torch.optim.lr_scheduler.LRScheduler, is_open: Callable[[], bool]) -> None:
    # A scheduler's attributes are its state, so the gate must be in its class.
    ungated: Any = type(scheduler)

    def step(self: Any, *args: Any, **kwargs: Any) -> None:
        if is_open():
            ungated.step(self, *args, **kwargs)

    scheduler.__class__ = type(ungated.__name__, (ungated,), {"step": step})
