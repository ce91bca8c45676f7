"""Random states of one worker: torch (CPU and its GPU), Python's ``random``, and NumPy's global generator."""

import contextlib
import hashlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def capture(device: torch.device) -> dict[str, Any]:
    """Return the present random states as plain values and tensors."""
    states: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state(),
    }
    states = as_plain(states)
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def as_plain(states: dict[str, Any]) -> dict[str, Any]:
    """Return random states with NumPy's array converted to a list; states of earlier versions contain the array."""
    if not isinstance(states["numpy"], tuple):
        return states
    name, keys, position, has_gauss, gauss = states["numpy"]
    return states | {"numpy": (str(name), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss))}


def restore(states: dict[str, Any], device: torch.device) -> None:
    """Restore the states that ``capture`` returned; a GPU's state is ignored if ``device`` is not a GPU."""
    torch.set_rng_state(states["torch"])
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


def seed_all(seed: int) -> None:
    """Seed every generator from one number."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run a block with the CPU's generators seeded, then restore their states; a context manager."""
    before = capture(torch.device("cpu"))
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        restore(before, torch.device("cpu"))


def mix(*parts: int) -> int:
    """Derive a 63-bit seed from several numbers, the same on every machine."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
