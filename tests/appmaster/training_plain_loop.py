"""An ordinary script: it reads variables of its loops after them, to print and to decide on the learning rate."""

import argparse
import os
import signal

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=6)
parser.add_argument("--break-after", type=int)
parser.add_argument("--steps", type=int)
parser.add_argument("--term-at", type=int)
parser.add_argument("--kill-at", type=int)
args = parser.parse_args()
points = 0


def point() -> None:
    """Be stopped here, if this is the place."""
    global points
    points += 1
    if points == args.term_at:
        os.kill(os.getpid(), signal.SIGTERM)
    if points == args.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Train, evaluate after every epoch, print what the loops left."""
    run = training.attach()
    torch.manual_seed(3)
    inputs, targets = torch.randn(22, 5), torch.randn(22, 1)
    loader = DataLoader(TensorDataset(inputs, targets), batch_size=args.batch_size, shuffle=True)
    model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    model, optimizer, plateau, loader = run.prepare(model, optimizer, plateau, loader)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        point()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        point()
        optimizer.step()
        point()
        run.log({"train/loss": loss})
        return loss

    def evaluate() -> None:
        with torch.no_grad():
            for number in range(3):
                point()
                error = nn.functional.mse_loss(model(inputs[number::3]), targets[number::3])
        run.log({"val/error": error})
        point()

    if args.steps is None:
        for epoch in run.epochs(3):
            point()
            for x, y in loader:
                loss = step(x, y)
                if args.break_after is not None and run.step % args.break_after == 0:
                    break
            point()
            plateau.step(loss)
            run.state["tails"] = run.state.get("tails", 0) + 1
            print(f"epoch {epoch} step {run.step} loss {loss.item():.9f} of {len(x)} samples", flush=True)
            evaluate()
    else:
        for x, y in run.steps(loader, args.steps):
            loss = step(x, y)
        epoch = 0
        print(f"epoch {epoch} step {run.step} loss {loss.item():.9f}", flush=True)
    point()
    evaluate()
    if args.break_after is None:  # of a loop left by `break` nothing is done again after the end of the work
        print(f"end: epoch {epoch} loss {loss.item():.9f}", flush=True)
    final = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "state": dict(run.state)}
    torch.save(final | {"plateau": plateau.state_dict(), "random": torch.rand(2), "step": run.step}, "final.pt")
    print("points", points)


main()
