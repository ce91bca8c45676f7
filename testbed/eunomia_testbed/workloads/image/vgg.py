"""A small network like VGG: pairs of convolutions without batch norm, each followed by pooling, and dense layers."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import digits
from eunomia_testbed.workloads.loop import arguments, train

args = arguments(batch_size=32, lr=0.02, momentum=0.9, width=12)
run = training.attach()
width = args.width
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
    nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU(),
    nn.Conv2d(2 * width, 2 * width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(8 * width, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
for layer in model:
    if isinstance(layer, nn.Conv2d | nn.Linear):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")  # without norm, torch's default init is too small
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
train(model, optimizer, digits(), args, run)
