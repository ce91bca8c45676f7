"""A wide perceptron with two hidden layers."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.image.digits import BATCH_SIZE, digits
from eunomia_testbed.workloads.loop import arguments, train

args = arguments(batch_size=BATCH_SIZE, lr=0.05, momentum=0.9, dropout=0.0, width=1280)
run = training.attach()
model = nn.Sequential(
    nn.Linear(64, args.width), nn.ReLU(), nn.Dropout(args.dropout),
    nn.Linear(args.width, args.width), nn.ReLU(), nn.Dropout(args.dropout),
    nn.Linear(args.width, 10),
)  # fmt: skip
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
train(model, optimizer, digits(), args, run)
