"""An autoencoder of users' rating rows; the items with the largest outputs are recommended."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.loop import arguments, train
from eunomia_testbed.workloads.recommendation.ratings import ITEMS, likes

args = arguments(batch_size=64, lr=0.003, width=128)
run = training.attach()
width = args.width
model = nn.Sequential(
    nn.Linear(ITEMS, width), nn.SELU(), nn.Linear(width, width // 2), nn.SELU(),
    nn.Linear(width // 2, width), nn.SELU(), nn.Linear(width, ITEMS),
)  # fmt: skip
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), likes(), args, run)
