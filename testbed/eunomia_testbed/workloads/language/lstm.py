"""A language model of LSTM cells, which predicts the next word at each position."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.language.text import WORDS, continuation
from eunomia_testbed.workloads.loop import arguments, train


class LanguageModel(nn.Module):
    """An embedding, two LSTM layers, and a linear layer that scores the next word."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.cells = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Map words (n, length) to scores (n, WORDS, length)."""
        scores: Tensor = self.head(self.cells(self.embed(words))[0])
        return scores.transpose(1, 2)


args = arguments(batch_size=20, lr=0.01, width=32, length=12)
run = training.attach()
model = LanguageModel(args.width)
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), continuation(args.length), args, run)
