"""A small convolutional network."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import BATCH_SIZE, digits
from eunomia_testbed.workloads.loop import arguments, train

args = arguments(batch_size=BATCH_SIZE, lr=0.05, momentum=0.9, channels=40)
run = training.attach()
channels = args.channels
model = nn.Sequential(
    nn.Unflatten(1, (1, 8, 8)),
    nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(),
    nn.Conv2d(channels, 2 * channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
    nn.Flatten(), nn.Linear(32 * channels, 128), nn.ReLU(), nn.Linear(128, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
train(model, optimizer, digits(), args, run)
