"""A wide perceptron with two hidden layers."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.demo.workloads.digits import arguments, train

args = arguments(lr=0.05, momentum=0.9, dropout=0.0, width=1280)
run = training.attach()
model = nn.Sequential(
    nn.Linear(64, args.width), nn.ReLU(), nn.Dropout(args.dropout),
    nn.Linear(args.width, args.width), nn.ReLU(), nn.Dropout(args.dropout),
    nn.Linear(args.width, 10),
)  # fmt: skip
train(model, torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum), run)
