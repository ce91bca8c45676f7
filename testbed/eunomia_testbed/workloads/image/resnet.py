"""A small residual network with batch norm, like ResNet-18."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import digits
from eunomia_testbed.workloads.loop import arguments, train


class Block(nn.Module):
    """Two convolutions with a residual connection; if the width changes, height and width of the image are halved."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        stride = 1 if before == after else 2
        self.layers = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU(),
            nn.Conv2d(after, after, 3, padding=1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip
        self.shortcut: nn.Module = nn.Identity()
        if before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride=2, bias=False), nn.BatchNorm2d(after))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, before, side, side) to (n, after, side or side / 2, ...)."""
        summed: Tensor = self.layers(images) + self.shortcut(images)
        return summed.relu()


args = arguments(batch_size=32, lr=0.05, momentum=0.9, width=8)
run = training.attach()
width = args.width
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
    Block(width, width), Block(width, 2 * width), Block(2 * width, 4 * width),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
train(model, optimizer, digits(), args, run)
