"""Training on handwritten digits: the loop that the demo's models share."""

import argparse
from collections.abc import Mapping

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training

BATCH_SIZE = 96
"""Global batch size: 15 steps an epoch on the 1437 training images."""
MOST_EPOCHS = 10_000
"""Number of epochs, more than any app file's ``max_iterations`` allows."""


def arguments(**defaults: float) -> argparse.Namespace:
    """Read the trial's parameters from the command line."""
    parser = argparse.ArgumentParser()
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def load() -> tuple[TensorDataset, Tensor, Tensor]:
    """Return the training set, and the images, shape (n, 64), values 0 to 1, and labels of the held-out fifth."""
    images, labels = (torch.tensor(column) for column in load_digits(return_X_y=True))
    images, held_out = images.float() / 16, torch.arange(len(images)) % 5 == 0
    return TensorDataset(images[~held_out], labels[~held_out]), images[held_out], labels[held_out]


def train(model: nn.Module, optimizer: torch.optim.Optimizer, run: training.Run | None = None) -> None:
    """Train until the run's ``max_iterations``; log the loss of each step and the accuracy after each epoch."""
    run = run or training.attach()
    data, images, labels = load()
    loader = DataLoader(data, batch_size=BATCH_SIZE, shuffle=True)
    model, optimizer, loader = run.prepare(model, optimizer, loader)
    images, labels = images.to(run.device), labels.to(run.device)
    for _ in run.epochs(MOST_EPOCHS):
        model.train()
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call] # of torch
            optimizer.step()
            run.log({"train/loss": loss})
        run.log(evaluate(model, images, labels))


@torch.no_grad()
def evaluate(model: nn.Module, images: Tensor, labels: Tensor) -> Mapping[str, Tensor]:
    """Return loss and accuracy on held-out digits."""
    model.eval()
    scores = model(images)
    accuracy = (scores.argmax(1) == labels).float().mean()
    return {"val/loss": nn.functional.cross_entropy(scores, labels), "val/accuracy": accuracy}
