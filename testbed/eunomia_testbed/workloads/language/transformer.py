"""An encoder-decoder transformer that translates sentences."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.language.text import WORDS, translation
from eunomia_testbed.workloads.loop import arguments, train


class Translator(nn.Module):
    """One encoder layer and one decoder layer, with learned position embeddings."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.place = nn.Parameter(0.1 * torch.randn(length, width))
        self.layers = nn.Transformer(
            width, nhead=4, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=2 * width, dropout=0.0,
            batch_first=True,
        )  # fmt: skip
        self.head = nn.Linear(width, WORDS)

    def forward(self, words: Tensor) -> Tensor:
        """Map sentences with shifted translations, (n, 2 length), to scores of the translation (n, WORDS, length)."""
        sentence, begun = words.chunk(2, dim=1)
        mask = nn.Transformer.generate_square_subsequent_mask(begun.shape[1], device=words.device)
        decoded = self.layers(self.embed(sentence) + self.place, self.embed(begun) + self.place, tgt_mask=mask)
        scores: Tensor = self.head(decoded)
        return scores.transpose(1, 2)


args = arguments(batch_size=32, lr=0.003, width=32, length=8)
run = training.attach()
model = Translator(args.width, args.length)
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), translation(args.length), args, run)
