"""Digits under a batch size that stays, or that Accordion's or the noise scale's rule changes; prints each epoch."""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--rule", choices=["static", "accordion", "gns"], default="static")
parser.add_argument("--epochs", type=int, default=40)
parser.add_argument("--small", type=int, default=16)
parser.add_argument("--large", type=int, default=128)
parser.add_argument("--every", type=int, default=4, help="epochs between Accordion's checks")
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
run = training.attach()
torch.manual_seed(args.seed)
images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
data = TensorDataset(images[~held_out], labels[~held_out])
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=args.lr)
rules = {
    "accordion": training.Accordion(small=args.small, large=args.large, every=args.every),
    "gns": training.Gns(small=args.small, large=args.large),
}
if args.rule == "static":
    loader = DataLoader(data, batch_size=args.small, shuffle=True)
    model, optimizer, loader = run.prepare(model, optimizer, loader)
else:
    model, optimizer, batches = training.adaptive(run, model, optimizer, data, rules[args.rule], shuffle=True)
for epoch in run.epochs(args.epochs):
    model.train()
    for x, y in loader if args.rule == "static" else batches.of(epoch):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        run.log({"train/loss": loss})
    model.eval()
    with torch.no_grad():
        right = (model(images[held_out].to(run.device)).argmax(1).cpu() == labels[held_out]).float().mean()
    run.log({"val/accuracy": right})
    size = args.small if args.rule == "static" else batches.batch_size
    print(f"epoch {epoch}: batch size {size}, step {run.step}, accuracy {right.item():.4f}", flush=True)
