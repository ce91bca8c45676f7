"""What a checkpoint may hold: tensors and plain values, which torch reads without running code from the file.

``torch.load(..., weights_only=True)`` takes these types and no others, so what is not one of them is refused when it is
given, not when the job is to go on from it.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import nn

from eunomia.errors import InputError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_TENSORS = (torch.Tensor, nn.Parameter)
CURE = (
    "a checkpoint must hold tensors and plain values only: make the state of it plain, or set trust_checkpoints = true "
    "in [job] of the app file, after which reading a checkpoint may run code in it"
)


def plain(value: Any, place: str) -> Any:
    """Return a state in which NumPy's numbers are Python's; what needs no change is returned as it is.

    Args:
        value: tensors and plain values in dicts, lists, tuples and sets.
        place: for the error, such as ``ReduceLROnPlateau``.

    Raises:
        InputError: something else is in it; the error names it.
    """
    kind = type(value)
    if kind in _PLAIN or kind in _TENSORS:
        return value
    if isinstance(value, np.generic) and type(value.item()) in _PLAIN:
        return value.item()
    if kind in (dict, OrderedDict):
        made = {plain(key, f"a key of {place}"): plain(item, f"{place}[{key!r}]") for key, item in value.items()}
        same = all(made.get(key, made) is item for key, item in value.items())
        return value if same else made
    if kind in (list, tuple, set):
        items = [plain(item, f"{place}[{number}]") for number, item in enumerate(value)]
        return value if all(one is item for one, item in zip(items, value, strict=True)) else kind(items)
    raise InputError(CURE, value=f"{kind.__module__}.{kind.__qualname__}", place=place)
