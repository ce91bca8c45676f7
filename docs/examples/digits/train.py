import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
for name, default in {"lr": 0.05, "width": 64, "momentum": 0.9, "epochs": 20}.items():
    parser.add_argument(f"--{name}", type=type(default), default=default)
args = parser.parse_args()
run = training.attach()
device = run.device
images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
loader = DataLoader(TensorDataset(images[~held_out], labels[~held_out]), batch_size=64, shuffle=True)
model = nn.Sequential(nn.Linear(64, args.width), nn.ReLU(), nn.Linear(args.width, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=args.momentum)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs)
model, optimizer, scheduler, loader = run.prepare(model, optimizer, scheduler, loader)
for epoch in run.epochs(args.epochs):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss})
    scheduler.step()
    with torch.no_grad():
        accuracy = (model(images[held_out].to(device)).argmax(1).cpu() == labels[held_out]).float().mean()
    print(f"epoch {epoch}: accuracy {accuracy:.4f}")
    run.log({"val/accuracy": accuracy})
