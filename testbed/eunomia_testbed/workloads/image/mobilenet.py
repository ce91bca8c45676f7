"""A small network like MobileNetV2: inverted residual blocks of depthwise convolutions, with batch norm."""

import torch
from torch import Tensor, nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import digits
from eunomia_testbed.workloads.loop import arguments, train


class InvertedBlock(nn.Module):
    """Three convolutions: pointwise to four times the width, depthwise, and pointwise to the output width."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        wide, stride = 4 * before, 1 if before == after else 2
        self.adds = before == after
        self.layers = nn.Sequential(
            nn.Conv2d(before, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide),
            nn.ReLU6(), nn.Conv2d(wide, after, 1, bias=False), nn.BatchNorm2d(after),
        )  # fmt: skip

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, before, side, side) to (n, after, side or side / 2, ...)."""
        mapped: Tensor = self.layers(images)
        return images + mapped if self.adds else mapped


args = arguments(batch_size=32, lr=0.05, momentum=0.9, width=8)
run = training.attach()
width = args.width
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU6(),
    InvertedBlock(width, width), InvertedBlock(width, 2 * width), InvertedBlock(2 * width, 2 * width),
    nn.Conv2d(2 * width, 8 * width, 1, bias=False), nn.BatchNorm2d(8 * width), nn.ReLU6(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
train(model, optimizer, digits(), args, run)
