"""Users and the items that they like, by four tastes that users and items have in part; alike at every start."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from eunomia_testbed.workloads.loop import Task

ITEMS = 256
SAMPLES = 4096
"""Users to train on."""
SHOWN = 20
"""Number of items that are recommended to a user."""
_HELD_OUT = 512
_SEED = 7


def likes() -> Task:
    """Return rows of users, shape (n, ITEMS), with 1 for each item that a user likes.

    Inputs and targets of training are equal. Of held-out users every second item is hidden from the inputs.
    """
    generator = torch.Generator().manual_seed(_SEED)
    users, items = (torch.randn(count, 4, generator=generator) for count in (SAMPLES + _HELD_OUT, ITEMS))
    liked = (users @ items.T > 2.5).float()
    known = liked[SAMPLES:] * (torch.arange(ITEMS) % 2)
    return Task(
        data=TensorDataset(liked[:SAMPLES], liked[:SAMPLES]),
        inputs=known,
        targets=liked[SAMPLES:],
        loss=nn.functional.binary_cross_entropy_with_logits,
        score={"val/precision": precision},
    )


def precision(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the fraction of the recommended items that the users like; outputs and targets (n, ITEMS)."""
    return targets.gather(1, outputs.topk(SHOWN, dim=1).indices).mean()
