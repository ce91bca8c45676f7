"""The gradient noise scale: the batch size at which noise and gradient are equal (McCandlish et al., 2018, App. A).

With B samples in the whole batch, b in a part, and squared norms of their mean gradients,

    |G|^2  is estimated by  (B |G_B|^2 - b |G_b|^2) / (B - b),
    tr(S)  is estimated by  (|G_b|^2 - |G_B|^2) / (1/b - 1/B),

and the noise scale is the quotient tr(S) / |G|^2 of running means of the two.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from eunomia_appmaster.training.batches import Piece
from eunomia_appmaster.training.run import Run


class NoiseScale:
    """Running estimates of the noise scale from the gradients of parts and of whole batches.

    Hooks on the parameters get a part's gradient before the workers average gradients. Workers have different parts;
    their estimates are averaged when the value is requested, which is a collective call of all workers.

    Args:
        model: the prepared model.
        run: the run that prepared it.
        smoothing: weight of the past in the running means.
    """

    def __init__(self, model: nn.Module, run: Run, *, smoothing: float) -> None:
        self._run, self._smoothing = run, smoothing
        self._parts: list[tuple[Piece, torch.Tensor]] = []
        self._weight = self._signal = self._noise = 0.0
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.register_hook(self._see)  # type: ignore[no-untyped-call]

    def value(self) -> float:
        """Return the noise scale in samples; NaN: no estimate yet; infinity: the estimate of |G|^2 is not above 0."""
        rows = self._run.gang.gather((self._weight, self._signal, self._noise))
        if min(weight for weight, _, _ in rows) <= 0.0:
            return math.nan
        signal = sum(signal / weight for weight, signal, _ in rows)
        noise = sum(noise / weight for weight, _, noise in rows)
        return max(noise, 0.0) / signal if signal > 0.0 else math.inf

    def step(self, gradients: Sequence[torch.Tensor]) -> None:
        """Process the gradient of a whole batch, before the optimizer's step.

        A batch that consists of one part only gives no estimate of the noise.
        """
        parts, self._parts = self._parts, []
        counted = [(piece, square) for piece, square in parts if piece.samples]
        if not counted:
            return
        small = sum(piece.samples for piece, _ in counted) / len(counted)
        whole = counted[0][0].samples * self._run.world_size / counted[0][0].weight
        if whole <= small:
            return
        of_part = sum(float(square) / piece.weight**2 for piece, square in counted) / len(counted)
        of_whole = sum(float(each.detach().square().sum()) for each in gradients)
        signal = (whole * of_whole - small * of_part) / (whole - small)
        noise = (of_part - of_whole) / (1.0 / small - 1.0 / whole)
        if math.isfinite(signal) and math.isfinite(noise):
            kept = self._smoothing
            self._weight = kept * self._weight + 1.0 - kept
            self._signal = kept * self._signal + (1.0 - kept) * signal
            self._noise = kept * self._noise + (1.0 - kept) * noise

    def state(self) -> dict[str, Any]:
        """Return the running means."""
        return {"weight": self._weight, "signal": self._signal, "noise": self._noise}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the running means of a checkpoint."""
        self._weight, self._signal, self._noise = state["weight"], state["signal"], state["noise"]

    def _see(self, gradient: torch.Tensor) -> None:
        """Add a parameter's part to the squared norm of the current piece's gradient, after ``Piece.weight``."""
        piece, square = self._run.accumulation.piece, gradient.detach().square().sum()
        if self._parts and self._parts[-1][0] is piece:
            self._parts[-1] = (piece, self._parts[-1][1] + square)
        else:
            self._parts.append((piece, square))
