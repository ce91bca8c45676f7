"""Sentences of a synthetic language: each word is followed by one of four others, two of which are frequent.

Every start draws the same sentences. A translation has the sentence's words in reverse order, each replaced.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from eunomia_testbed.workloads.loop import Task, accuracy

WORDS = 32
"""Size of the vocabulary; the word 0 begins a translation and is in no sentence."""
SAMPLES = 2048
"""Number of training sentences."""
_HELD_OUT = 256
_SEED = 7


def continuation(length: int) -> Task:
    """Return the task of predicting each next word of a sentence: inputs and targets of shape (n, length)."""
    sentences = _sentences(length + 1)
    return _task(sentences[:, :-1], sentences[:, 1:])


def translation(length: int) -> Task:
    """Return the task of translating sentences.

    Inputs of shape (n, 2 length) are a sentence and its translation, which is shifted by one word to begin with 0;
    targets of shape (n, length) are the translation.
    """
    sentences = _sentences(length)
    dictionary = torch.randperm(WORDS - 1, generator=torch.Generator().manual_seed(_SEED)) + 1
    translations = dictionary[sentences - 1].flip(1)
    begun = torch.cat([torch.zeros_like(translations[:, :1]), translations[:, :-1]], dim=1)
    return _task(torch.cat([sentences, begun], dim=1), translations)


def _sentences(length: int) -> Tensor:
    """Draw sentences, shape (SAMPLES + _HELD_OUT, length), of the words 1 to WORDS - 1."""
    generator = torch.Generator().manual_seed(_SEED)
    followers = torch.stack([torch.randperm(WORDS - 1, generator=generator)[:4] + 1 for _ in range(WORDS)])
    word = torch.randint(1, WORDS, (SAMPLES + _HELD_OUT,), generator=generator)
    chosen = torch.multinomial(
        torch.tensor([0.5, 0.3, 0.1, 0.1]), len(word) * length, replacement=True, generator=generator
    )
    words = []
    for choice in chosen.view(length, -1):
        words.append(word)
        word = followers[word, choice]
    return torch.stack(words, dim=1)


def _task(inputs: Tensor, targets: Tensor) -> Task:
    return Task(
        data=TensorDataset(inputs[:SAMPLES], targets[:SAMPLES]),
        inputs=inputs[SAMPLES:],
        targets=targets[SAMPLES:],
        loss=nn.functional.cross_entropy,
        score={"val/accuracy": accuracy},
    )
