"""Values that a checkpoint may contain: tensors and plain values, which torch reads without running code from the file.

``torch.load(..., weights_only=True)`` accepts only these types, so others are refused when they are registered or
saved, not when the job resumes.
"""

from collections import OrderedDict
from typing import Any

import numpy as np
import torch
from torch import nn

from eunomia_appmaster.training.misuse import MisuseError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_TENSORS = (torch.Tensor, nn.Parameter)
REMEDY = (
    "a checkpoint must hold tensors and plain values only: make the state of it plain, or set trust_checkpoints = true "
    "in [job] of the app file, after which reading a checkpoint may run code in it"
)


def plain(value: Any, place: str) -> Any:
    """Return a state with NumPy's numbers converted to Python's; unchanged parts are not copied.

    Args:
        value: tensors and plain values in dicts, lists, tuples and sets.
        place: name of the state's owner in errors, such as ``ReduceLROnPlateau``.

    Raises:
        MisuseError: the state contains a value of another type, which the error names.
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
    raise MisuseError(REMEDY, value=f"{kind.__module__}.{kind.__qualname__}", place=place)
