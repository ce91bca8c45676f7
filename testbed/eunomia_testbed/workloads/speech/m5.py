"""A small network like M5 (Dai et al., 2017): convolutions over the raw waveform, with batch norm and pooling."""

import torch
from torch import nn

from eunomia_appmaster import training
from eunomia_testbed.workloads.loop import arguments, train
from eunomia_testbed.workloads.speech.sounds import WORDS, sounds

args = arguments(batch_size=32, lr=0.005, width=16)
run = training.attach()
width = args.width
model = nn.Sequential(
    nn.Conv1d(1, width, 16, stride=4), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(4),
    nn.Conv1d(width, width, 3, padding=1), nn.BatchNorm1d(width), nn.ReLU(), nn.MaxPool1d(4),
    nn.Conv1d(width, 2 * width, 3, padding=1), nn.BatchNorm1d(2 * width), nn.ReLU(),
    nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * width, WORDS),
)  # fmt: skip
train(model, torch.optim.Adam(model.parameters(), lr=args.lr), sounds(), args, run)
