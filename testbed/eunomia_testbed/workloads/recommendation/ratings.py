"""Users and the items that they like, drawn from a model with four latent factors; the same at every start."""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from eunomia_testbed.workloads.loop import Task

ITEMS = 256
SAMPLES = 4096
"""Number of users in the training data."""
SHOWN = 20
"""Number of items that are recommended to a user."""
_HELD_OUT = 512
_SEED = 7


def likes() -> Task:
    """Return the task of recommending items: a row per user, (n, ITEMS), with 1 for each item that the user likes.

    Training inputs equal their targets. In the inputs of held-out users, every second item is hidden (0).
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
