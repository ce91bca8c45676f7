"""The script's model in a live gang: one module for all sizes, whose gradients are averaged over the present gang."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from eunomia_appmaster.training.live.gang import LiveGang
from eunomia_appmaster.training.live.groups import InFlight, PeerLostError, after_backward
from eunomia_appmaster.training.misuse import MisuseError

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20
"""Bytes of gradients at which a bucket is full: the first one, small so that summing begins early, and the others."""


class LiveModel(nn.Module):
    """A thin wrapper around the script's module, which is ``module``.

    The state has the parameter names of the script's module, at every gang size. Outside of ``no_sync``, each backward
    pass averages gradients over the gang, and each forward pass first copies rank 0's buffers.
    """

    def __init__(self, module: nn.Module, gang: LiveGang) -> None:
        super().__init__()
        self.module = module
        self._gang = gang
        self._reducer = GradientReducer(module, gang)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the script's module."""
        if self._reducer.on:
            self._gang.same(list(self.module.buffers()))
        return self.module(*args, **kwargs)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients on this worker without averaging, in the block; a context manager."""
        before, self._reducer.on = self._reducer.on, False
        try:
            yield
        finally:
            self._reducer.on = before

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state of the script's module."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Load a state of the script's module."""
        return self.module.load_state_dict(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Module:
        return copy.deepcopy(self.module, memo)

    def __reduce__(self) -> tuple[Any, ...]:
        return _itself, (self.module,)

    def register_comm_hook(self, *_: Any, **__: Any) -> None:
        """Refuse a hook of DDP.

        Raises:
            MisuseError: always.
        """
        rule = 'a script with a communication hook must be started with elastic = "restart"'
        raise MisuseError(rule, value="register_comm_hook()", place="prepare()")

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "module":
                raise
            return getattr(super().__getattr__("module"), name)


def _itself(module: nn.Module) -> nn.Module:
    return module


class GradientReducer:
    """Averages the gradients of a module over the gang, bucket by bucket while the backward pass still runs.

    Parameters without a gradient on every worker keep none.

    Args:
        module: the module whose parameters are trained.
        gang: the gang over which to average.
    """

    def __init__(self, module: nn.Module, gang: LiveGang) -> None:
        self.on = True
        self._gang = gang
        self._buckets = _buckets([each for each in module.parameters() if each.requires_grad])
        self._of = {id(each): number for number, bucket in enumerate(self._buckets) for each in bucket}
        self._missing: list[int] = []
        self._flying: list[tuple[torch.Tensor, InFlight]] = []
        self._runs = False
        for bucket in self._buckets:
            for each in bucket:
                each.register_post_accumulate_grad_hook(self._came)  # type: ignore[no-untyped-call]

    def _came(self, parameter: torch.Tensor) -> None:
        if not self.on or self._gang.size == 1:
            return
        if not self._runs:
            self._runs, self._missing, self._flying = True, [len(bucket) for bucket in self._buckets], []
            after_backward(self._finish)
        self._missing[self._of[id(parameter)]] -= 1
        while len(self._flying) < len(self._buckets) and self._missing[len(self._flying)] <= 0:
            if not self._launch():
                return

    def _launch(self) -> bool:
        """Begin to sum the next bucket over the gang, in the same order on all workers; returns False on failure."""
        bucket = self._buckets[len(self._flying)]
        parts = [_flat(each) for each in bucket]
        # For each parameter, on how many workers it has a gradient.
        parts.append(torch.tensor([float(each.grad is not None) for each in bucket], dtype=bucket[0].dtype))
        parts[-1] = parts[-1].to(bucket[0].device)
        flat = torch.cat(parts)
        work = self._gang.total(flat)
        if work is None:
            # No other bucket may begin: this backward pass is lost.
            self._missing = [len(bucket) + 1 for bucket in self._buckets]
            return False
        self._flying.append((flat, work))
        return True

    def _finish(self) -> None:
        self._runs = False
        while not self._gang.torn and len(self._flying) < len(self._buckets):
            if not self._launch():
                break
        for number, (flat, work) in enumerate(self._flying):
            try:
                work.wait()
            except PeerLostError as error:
                self._gang.loses(str(error))
                continue
            if not self._gang.torn:
                _give(flat, self._buckets[number], self._gang.size)
        self._flying = []


def _buckets(parameters: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters in buckets of one type and device, last parameters first, as backward passes reach them."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    for each in reversed(parameters):
        last = buckets[-1][-1] if buckets else None
        full = size >= (FIRST_BUCKET_BYTES if len(buckets) == 1 else BUCKET_BYTES)
        if last is None or full or (last.dtype, last.device) != (each.dtype, each.device):
            buckets.append([])
            size = 0
        buckets[-1].append(each)
        size += each.numel() * each.element_size()
    return buckets


def _flat(parameter: nn.Parameter) -> torch.Tensor:
    if parameter.grad is None:
        return torch.zeros(parameter.numel(), dtype=parameter.dtype, device=parameter.device)
    return parameter.grad.detach().reshape(-1)


def _give(flat: torch.Tensor, bucket: list[nn.Parameter], workers: int) -> None:
    """Set the gradients of a bucket's parameters to the averages."""
    *parts, came = torch.split(flat, [*(each.numel() for each in bucket), len(bucket)])
    flat[: -len(bucket)].div_(workers)
    for parameter, part, count in zip(bucket, parts, came.tolist(), strict=True):
        if count:
            parameter.grad = part.view_as(parameter)
