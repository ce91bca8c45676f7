"""A hook before a prepared model's forward pass: records a sign of life, and polls for orders in evaluations."""

from collections.abc import Callable
from typing import Any

from torch import nn


class Poll:
    """A forward pre-hook of a model: copies of the model share the hook, and pickles of the model leave it out."""

    def __init__(self, ask: Callable[[bool], None]) -> None:
        self._ask = ask

    def __call__(self, module: nn.Module, _inputs: Any) -> None:
        """Record a sign of life and poll; PyTorch calls this before the forward pass."""
        self._ask(module.training)

    def __deepcopy__(self, _memo: dict[int, Any]) -> "Poll":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (_NoPoll, ())


class _NoPoll:
    def __call__(self, _module: nn.Module, _inputs: Any) -> None:
        return None
