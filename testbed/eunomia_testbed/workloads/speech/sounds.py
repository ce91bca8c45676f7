"""Short sounds of eight words: each has two consecutive tones, at random loudness and phase, with noise."""

import math

import torch
from torch import nn
from torch.utils.data import TensorDataset

from eunomia_testbed.workloads.loop import Task, accuracy

WORDS = 8
SAMPLES = 2048
"""Number of training sounds."""
LENGTH = 512
"""Number of points in a sound."""
_HELD_OUT = 256
_SEED = 7


def sounds() -> Task:
    """Return the task of classifying sounds, (n, 1, LENGTH), by word index, (n,); the data are equal at every call."""
    generator = torch.Generator().manual_seed(_SEED)
    count = SAMPLES + _HELD_OUT
    tones = torch.rand(WORDS, 2, generator=generator) * 0.3 + 0.05  # in half turns per point
    words = torch.randint(WORDS, (count,), generator=generator)
    frequencies = tones[words].repeat_interleave(LENGTH // 2, dim=1) * (
        1 + 0.02 * torch.randn(count, 1, generator=generator)
    )
    phases = 2 * math.pi * torch.rand(count, 1, generator=generator)
    loudness = 0.5 + torch.rand(count, 1, generator=generator)
    waves = loudness * torch.sin(math.pi * frequencies.cumsum(dim=1) + phases)
    waves = (waves + 0.3 * torch.randn(count, LENGTH, generator=generator))[:, None]
    return Task(
        data=TensorDataset(waves[:SAMPLES], words[:SAMPLES]),
        inputs=waves[SAMPLES:],
        targets=words[SAMPLES:],
        loss=nn.functional.cross_entropy,
        score={"val/accuracy": accuracy},
    )
