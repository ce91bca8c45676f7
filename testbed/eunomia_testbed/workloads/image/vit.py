"""A vision transformer whose tokens are the eight pixel rows of an image."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import BATCH_SIZE, digits
from eunomia_testbed.workloads.loop import arguments, train


class RowTransformer(nn.Module):
    """A transformer encoder over the rows of an image, with two layers and a linear classifier on the mean token."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(torch.zeros(8, width))
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=2 * width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, 64) to scores (n, 10)."""
        rows = self.embed(images.view(-1, 8, 8)) + self.place
        scores: Tensor = self.head(self.layers(rows).mean(dim=1))
        return scores


args = arguments(batch_size=BATCH_SIZE, lr=0.002, width=96)
run = training.attach()
model = RowTransformer(args.width)
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), digits(), args, run)
