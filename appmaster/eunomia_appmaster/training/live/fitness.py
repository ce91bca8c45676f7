"""Checks whether the objects that a script prepares can change live; if not, the job is changed only by restarts."""

from collections.abc import Mapping
from typing import Any

from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from eunomia_appmaster.training.gang import Gang
from eunomia_appmaster.training.live.gang import OWN_GROUP, LiveGang

UNDERSTOOD = frozenset({"find_unused_parameters", "bucket_cap_mb", "gradient_as_bucket_view", "init_sync"})
"""Arguments of DDP that a live model can ignore, since they do not change gradients."""
_UNFIT_OBJECTS = {
    "OptimizedModule": "a compiled model",
    "FullyShardedDataParallel": "FullyShardedDataParallel",
    "FSDPModule": "a model of fully_shard",
    "SyncBatchNorm": "SyncBatchNorm",
}


class Fitness:
    """Checks all objects that a script prepares; the first one that cannot change live makes the gang a fixed one.

    Args:
        gang: this worker's gang.
    """

    def __init__(self, gang: Gang) -> None:
        self._gang = gang
        self.fixed = False
        """Whether models are wrapped in DDP, in a process group of fixed size."""

    def check(self, thing: Any, ddp: Mapping[str, Any]) -> None:
        """Check an object before it is prepared; a collective call of all workers if the object cannot change live."""
        if not isinstance(self._gang, LiveGang) or self.fixed:
            return
        why = self._unfit(thing, ddp)
        if why:
            self.fixed = True
            self._gang.fix(why)

    def _unfit(self, thing: Any, ddp: Mapping[str, Any]) -> str:
        if dist.is_initialized():
            return OWN_GROUP
        if unknown := sorted(name for name in ddp if name not in UNDERSTOOD):
            return f"DDP is given {', '.join(unknown)}"
        if isinstance(thing, DistributedDataParallel):
            return "the script has wrapped its model in DistributedDataParallel"
        inside = thing.modules() if isinstance(thing, nn.Module) else (thing,)
        for each in inside:
            if getattr(each, "_compiled_call_impl", None) is not None:  # compiled in place
                return f"{_UNFIT_OBJECTS['OptimizedModule']} cannot change its workers"
            for kind in type(each).__mro__:
                if kind.__name__ in _UNFIT_OBJECTS:
                    return f"{_UNFIT_OBJECTS[kind.__name__]} cannot change its workers"
        return ""
