"""The training programs, each with its batch sizes, modes and metric. This module does not import torch."""

import shlex
from collections.abc import Mapping
from typing import Final

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.words import did_you_mean

MODES: Final = ("static", "accordion", "gns")
"""Ways to choose batch sizes: one for the whole training, or by the rule Accordion or Gns of the training helper."""
ELASTIC: Final = ("restart", "live")
"""Values of ``elastic`` in an app file: how the number of workers changes, by restart or live."""
_HERE: Final = "eunomia_testbed.workloads"


@value
class Program:
    """A training program.

    All programs have the options ``--batch-size``, ``--mode``, ``--largest-batch``, ``--check-every`` and ``--epochs``.
    """

    name: str
    task: str
    """The task of the model: image, language, speech or recommendation."""
    module: str
    """The module to start, as ``python -m MODULE``."""
    summary: str
    """The model in a few words."""
    batch_size: int
    """Default global batch size."""
    smallest_batch: int
    largest_batch: int
    """The smallest and the largest global batch size with which the loss falls and an epoch has several steps."""
    samples: int
    """Number of training samples, which is also the number of samples per epoch."""
    metric: str = "val/accuracy"
    """Tag of the metric that the program logs after each epoch, on held-out data; larger is better."""
    modes: tuple[str, ...] = MODES
    elastic: tuple[str, ...] = ELASTIC
    cost_option: str = "width"
    """The numeric option that makes an iteration more expensive, such as the network's width."""

    def takes(self, batch_size: int) -> bool:
        """Return whether the program accepts a global batch size, that is, whether the size is within its bounds."""
        return self.smallest_batch <= batch_size <= self.largest_batch

    def command(
        self,
        *,
        batch_size: int | None = None,
        mode: str = "static",
        largest_batch: int | None = None,
        epochs: int | None = None,
        options: Mapping[str, object] | None = None,
    ) -> str:
        """Return ``python -m MODULE`` with the options as one line, for ``command`` of an app file.

        Args:
            batch_size: global batch size; the first one if the mode is not ``static``. None: the program's own.
            mode: one of ``MODES``.
            largest_batch: global batch size up to which the mode adapts; None: four times the first, within bounds.
            epochs: number of epochs; None: until the run's ``max_iterations``.
            options: further options of the program by name, such as its width.

        Raises:
            InputError: the program lacks the mode, a batch size is out of bounds, or an adapting one cannot grow.
        """
        size = self._checked(batch_size or self.batch_size)
        words = ["python", "-m", self.module, f"--batch-size={size}"]
        if mode not in self.modes:
            rule = f"a mode of this program must be one of {', '.join(self.modes)}"
            raise InputError(rule, value=f'"{mode}"', place=self.name)
        if mode != "static":
            largest = self._checked(largest_batch or min(4 * size, self.largest_batch))
            if largest <= size:
                rule = f"a batch size that the mode {mode} adapts must be below the largest, {largest}"
                raise InputError(rule, value=str(size), place=self.name)
            words += [f"--mode={mode}", f"--largest-batch={largest}"]
        if epochs is not None:
            words.append(f"--epochs={epochs}")
        return shlex.join(words + [f"--{name}={given}" for name, given in (options or {}).items()])

    def _checked(self, batch_size: int) -> int:
        if not self.takes(batch_size):
            rule = f"a batch size of this program must be {self.smallest_batch} to {self.largest_batch}"
            raise InputError(rule, value=str(batch_size), place=self.name)
        return batch_size


def _image(name: str, summary: str, *, batch_size: int = 32, cost_option: str = "width") -> Program:
    """Return a program that classifies scikit-learn's digits, of which 80 % are training samples."""
    return Program(
        name=name,
        task="image",
        module=f"{_HERE}.image.{name}",
        summary=summary,
        batch_size=batch_size,
        smallest_batch=8,
        largest_batch=256,
        samples=1437,
        cost_option=cost_option,
    )


def _language(name: str, summary: str, *, batch_size: int = 32) -> Program:
    """Return a program that learns sentences drawn from a synthetic language."""
    return Program(
        name=name,
        task="language",
        module=f"{_HERE}.language.{name}",
        summary=summary,
        batch_size=batch_size,
        smallest_batch=4,
        largest_batch=256,
        samples=2048,
    )


PROGRAMS: Final[tuple[Program, ...]] = (
    _image("resnet", "a residual network of four blocks with batch norm"),
    _image("vgg", "pairs of convolutions without norm, and dense layers"),
    _image("mobilenet", "inverted residual blocks of depthwise convolutions, with batch norm"),
    _image("cnn", "two convolutions and two dense layers", batch_size=96, cost_option="channels"),
    _image("mlp", "a perceptron with two hidden layers", batch_size=96),
    _image("vit", "a transformer that reads an image as eight rows of pixels", batch_size=96),
    _language("lstm", "a language model of two layers of LSTM cells", batch_size=20),
    _language("seq2seq", "a translator of LSTM cells with attention"),
    _language("transformer", "a translator with a layer of encoder and one of decoder"),
    Program(
        name="m5",
        task="speech",
        module=f"{_HERE}.speech.m5",
        summary="convolutions over the waveform, with batch norm",
        batch_size=32,
        smallest_batch=8,
        largest_batch=256,
        samples=2048,
    ),
    Program(
        name="autoencoder",
        task="recommendation",
        module=f"{_HERE}.recommendation.autoencoder",
        summary="an autoencoder of users' rows",
        batch_size=64,
        smallest_batch=16,
        largest_batch=512,
        samples=4096,
        metric="val/precision",
    ),
)
"""All programs, by task."""


def program_named(name: str) -> Program:
    """Return the program with this name.

    Raises:
        InputError: no program has this name.
    """
    found = next((program for program in PROGRAMS if program.name == name), None)
    if found is None:
        names = [program.name for program in PROGRAMS]
        rule = f"a program must be one of {', '.join(names)}"
        raise InputError(rule, value=f'"{name}"{did_you_mean(name, names)}', place="programs")
    return found
