"""The training loop of all programs, with the options that they share.

Another training loop needs only the lines that use ``run``; see "Make a training script elastic" in the documentation.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from eunomia_appmaster import training
from eunomia_testbed.workloads.programs import MODES

MOST_EPOCHS = 10_000
"""Number of epochs, more than any app file's ``max_iterations`` allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The data, loss and metrics of a training task.

    Attributes:
        data: training samples, each of inputs and targets.
        inputs: inputs of held-out samples, (n, ...).
        targets: targets of held-out samples, (n, ...).
        loss: the mean loss of a batch's outputs against its targets.
        score: by tag, a metric on held-out samples in addition to the loss; larger is better.
    """

    data: TensorDataset
    inputs: Tensor
    targets: Tensor
    loss: Callable[[Tensor, Tensor], Tensor]
    score: Mapping[str, Callable[[Tensor, Tensor], Tensor]]


def arguments(*, batch_size: int, **defaults: float) -> argparse.Namespace:
    """Parse the command line; ``lr``, given for the program's own batch size, is scaled with the batch size.

    Args:
        batch_size: the program's own global batch size, the default of ``--batch-size``.
        defaults: default values of the program's further options, which include ``lr``.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=batch_size, help="global batch size, at first")
    parser.add_argument("--mode", choices=MODES, default="static", help="the rule that changes the batch size")
    parser.add_argument("--largest-batch", type=int, help="largest batch size of a rule; default: four times the first")
    parser.add_argument("--check-every", type=int, default=10, help="epochs between two checks of accordion")
    parser.add_argument("--epochs", type=int, default=MOST_EPOCHS, help="number of passes over the data")
    for name, default in defaults.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    given = parser.parse_args()
    given.lr *= given.batch_size / batch_size
    return given


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, task: Task, args: argparse.Namespace, run: training.Run
) -> None:
    """Train until the last epoch or the run's ``max_iterations``; log the loss of each step, and scores by epoch."""
    batches: Callable[[int], Iterable[Any]]
    if args.mode == "static":
        loader = DataLoader(task.data, batch_size=args.batch_size, shuffle=True)
        model, optimizer, loader = run.prepare(model, optimizer, loader)
        batches = lambda _epoch: loader  # noqa: E731 - beside `adapted.of`
    else:
        model, optimizer, adapted = training.adaptive(run, model, optimizer, task.data, _rule(args), shuffle=True)
        batches = adapted.of
    inputs, targets = task.inputs.to(run.device), task.targets.to(run.device)
    for epoch in run.epochs(args.epochs):
        model.train()
        for x, y in batches(epoch):
            optimizer.zero_grad()
            loss = task.loss(model(x), y)
            loss.backward()  # type: ignore[no-untyped-call] # of torch
            optimizer.step()
            run.log({"train/loss": loss})
        run.log(_evaluate(model, task, inputs, targets))


def _rule(args: argparse.Namespace) -> training.Accordion | training.Gns:
    largest = args.largest_batch or 4 * args.batch_size
    if args.mode == "gns":
        return training.Gns(small=args.batch_size, large=largest)
    return training.Accordion(small=args.batch_size, large=largest, every=args.check_every)


@torch.no_grad()
def _evaluate(model: nn.Module, task: Task, inputs: Tensor, targets: Tensor) -> Mapping[str, Tensor]:
    """Return by tag the loss and the scores on held-out samples."""
    model.eval()
    outputs = model(inputs)
    scores = {tag: score(outputs, targets) for tag, score in task.score.items()}
    return {"val/loss": task.loss(outputs, targets), **scores}


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the fraction of targets with the largest score; outputs (n, classes, ...), targets (n, ...)."""
    return (outputs.argmax(1) == targets).float().mean()
