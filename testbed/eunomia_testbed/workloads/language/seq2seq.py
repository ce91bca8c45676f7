"""A sequence-to-sequence translator of LSTM cells with attention, like GNMT."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.language.text import WORDS, translation
from eunomia_testbed.workloads.loop import arguments, train


class Translator(nn.Module):
    """An encoder and a decoder of LSTM cells; each word of the translation attends to the sentence's words."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(2 * width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Map sentences with shifted translations, (n, 2 length), to scores of the translation (n, WORDS, length)."""
        sentence, begun = words.chunk(2, dim=1)
        encoded, state = self.encoder(self.embed(sentence))
        decoded, _ = self.decoder(self.embed(begun), state)
        attended = (decoded @ encoded.transpose(1, 2)).softmax(dim=2) @ encoded
        scores: Tensor = self.head(torch.cat([decoded, attended], dim=2))
        return scores.transpose(1, 2)


args = arguments(batch_size=32, lr=0.01, width=32, length=8)
run = training.attach()
model = Translator(args.width)
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), translation(args.length), args, run)
