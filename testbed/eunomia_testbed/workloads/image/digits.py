"""Handwritten digits of 8 x 8 pixels: the data set of all image programs."""

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

from eunomia_testbed.workloads.loop import Task, accuracy

BATCH_SIZE = 96
"""Global batch size: 15 steps an epoch on the 1437 training images."""


def digits() -> Task:
    """Return the task of classifying the digits: images (n, 64) with values 0 to 1; every fifth image is held out."""
    images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
    images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
    return Task(
        data=TensorDataset(images[~held_out], labels[~held_out]),
        inputs=images[held_out],
        targets=labels[held_out],
        loss=nn.functional.cross_entropy,
        score={"val/accuracy": accuracy},
    )
