"""The digits example with a choice of micro-batches, which writes its final parameters."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--micro-batches", type=int, default=1)
parser.add_argument("--micro-batch-size", type=int)
parser.add_argument("--clear-after", action="store_true")
parser.add_argument("--samples", type=int)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--final", default="final.pt")
args = parser.parse_args()
run = training.attach()
images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
data = TensorDataset(images[~held_out][: args.samples], labels[~held_out][: args.samples])
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
held_out_loader = DataLoader(TensorDataset(images[held_out], labels[held_out]), batch_size=100)
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=460)
model, optimizer, scheduler, loader, held_out_loader = run.prepare(
    model,
    optimizer,
    scheduler,
    loader,
    held_out_loader,
    micro_batches=args.micro_batches,
    micro_batch_size=args.micro_batch_size,
)
for _epoch in run.epochs(args.epochs):
    for x, y in loader:
        if not args.clear_after:
            optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        if args.clear_after:
            model.zero_grad()
        scheduler.step()
        run.log({"train/loss": loss})
    with torch.no_grad():
        right = sum(int((model(x).argmax(1) == y).sum()) for x, y in held_out_loader)
    run.log({"val/accuracy": right / int(held_out.sum())})
if run.is_main:
    inner = model.module if run.world_size > 1 else model
    torch.save({"step": run.step, "model": inner.state_dict()}, args.final)
