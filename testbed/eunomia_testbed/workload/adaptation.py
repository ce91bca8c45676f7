"""Rules by which jobs change their batch size epoch by epoch: Accordion and GNS, as in Shockwave's traces.

Source: the public simulator of Shockwave (NSDI'23, ``uw-mad-dash/shockwave``), whose profiles have the batch size of
every epoch. An epoch is one pass over the data set, so it has fewer steps at larger batch sizes. Epochs count from 0.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final

from eunomia.errors import InputError

MODES: Final = ("static", "accordion", "gns")

SAMPLES: Final[Mapping[str, int]] = {
    "ResNet-18": 50_000,
    "ResNet-50": 100_000,
    "Transformer": 10_000,
    "LM": 59_675,
    "Recommendation": 117_907,
    "CycleGAN": 6_287,
    "A3C": 4,
}
"""Samples per epoch: CIFAR-10, ImageNet (their subset), Multi30k, Wikitext-2, ML-20M, monet2photo, Pong."""

LARGEST_BATCH: Final[Mapping[str, int]] = {"ResNet-18": 256, "ResNet-50": 128, "LM": 80, "Recommendation": 8192}
"""The largest batch size of each model that adapts; other models keep their batch size."""

CRITICAL_SHARE: Final = 0.3
"""Fraction f; of n epochs, Accordion always counts the first floor(f n) + 1 as critical."""

TABLE_STEP: Final = 10
"""Number of epochs to which an entry of Accordion's table applies."""

_Growth = Mapping[int, Mapping[int, Mapping[int, int]]]
_GNS: Final[Mapping[str, _Growth]] = {
    "ResNet-18": {
        1: {
            16: {31: 32, 41: 64, 51: 128, 71: 256},
            32: {21: 64, 31: 128, 51: 256},
            64: {11: 128, 31: 256},
            128: {11: 256},
        },
        2: {
            16: {21: 32, 31: 64, 91: 128, 111: 256},
            32: {11: 64, 21: 128, 41: 256},
            64: {21: 128, 41: 256},
            128: {41: 256},
        },
        4: {
            16: {11: 32, 21: 64, 81: 128, 91: 256},
            32: {21: 64, 31: 128, 61: 256},
            64: {11: 128, 61: 256},
            128: {11: 256},
        },
    },
    "ResNet-50": {
        1: {64: {101: 128}},
        2: {32: {101: 64, 111: 128}, 64: {81: 128}},
        4: {32: {131: 64, 221: 128}, 64: {191: 128}},
    },
    "LM": {
        1: {
            5: {31: 10, 41: 20, 61: 40, 71: 80},
            10: {11: 20, 21: 40, 41: 80},
            20: {11: 40, 41: 80},
            40: {11: 80},
        },
        2: {
            5: {31: 10, 51: 20, 61: 40, 71: 80},
            10: {11: 20, 31: 40, 41: 80},
            20: {31: 40, 41: 80},
            40: {11: 80},
        },
        4: {
            5: {11: 10, 31: 20, 71: 40, 91: 80},
            10: {11: 20, 31: 40, 61: 80},
            20: {11: 40, 61: 80},
            40: {61: 80},
        },
    },
    "Recommendation": {
        1: {
            512: {21: 1024, 41: 2048, 71: 4096, 91: 8192},
            1024: {21: 2048, 51: 4096, 91: 8192},
            2048: {21: 4096, 41: 8192},
            4096: {41: 8192},
        },
    },
}
"""Batch size by first epoch, for each model, number of GPUs and first batch size, from measured gradient noise."""

_NAMED: Final = re.compile(r"(?P<family>.+?) \(batch size (?P<batch>\d+)\)")


def split_model(model: str) -> tuple[str, int | None]:
    """Split ``ResNet-18 (batch size 32)`` into ``("ResNet-18", 32)``; without a batch size, the second item is None."""
    match = _NAMED.fullmatch(model)
    return (match["family"], int(match["batch"])) if match else (model, None)


def named_model(family: str, batch: int | None) -> str:
    """Return a model's name as in throughput files, such as ``ResNet-18 (batch size 32)``."""
    return family if batch is None else f"{family} (batch size {batch})"


def epochs_of(model: str, batch: int, total_steps: float) -> int:
    """Return the number of epochs in ``total_steps`` steps at batch size ``batch``, rounded up.

    Raises:
        InputError: the model's data set is unknown, or the batch size is below 1.
    """
    return math.ceil(total_steps / steps_per_epoch(model, batch))


def passes_of(model: str, total_steps: float) -> tuple[float, float]:
    """Return the number of epochs in ``total_steps`` steps at the model's batch size, and the samples per epoch.

    Both are NaN if the model's name has no batch size, or its data set is unknown.
    """
    family, batch = split_model(model)
    if not batch or family not in SAMPLES or not math.isfinite(total_steps):
        return math.nan, math.nan
    return float(epochs_of(family, batch, total_steps)), float(SAMPLES[family])


def steps_per_epoch(model: str, batch: int) -> int:
    """Return the number of optimizer steps in one pass over the model's data set, rounded up.

    Raises:
        InputError: the model's data set is unknown, or the batch size is below 1.
    """
    family = _family(model)
    if batch < 1:
        raise InputError("batch size must be at least 1", value=str(batch), place=model)
    return math.ceil(SAMPLES[family] / batch)


def regimes_of(
    model: str, batch: int, gpus: int, mode: str, total_steps: float, *, last_as_first: bool = True
) -> tuple[tuple[int, int], ...]:
    """Return the regimes ``(epochs, batch size)`` of a job, in order.

    Args:
        model: model family, such as ``ResNet-18``, or full name with the batch size.
        batch: the first batch size, as in the throughput tables.
        gpus: gang size of the job; GNS's tables have 1, 2 and 4 GPUs, and jobs of other sizes keep their batch size.
        mode: ``static``, ``accordion`` or ``gns``.
        total_steps: work in steps at the first batch size.
        last_as_first: whether the last epoch of a GNS job that grew more than once has the first batch size again, as
            in the published profiles (an artefact of their code, kept for comparability).

    Raises:
        InputError: the mode or model is unknown, the batch size is below 1, or steps are not positive.
    """
    if mode not in MODES:
        raise InputError(f"mode must be one of {', '.join(MODES)}", value=f'"{mode}"', place=model)
    if not total_steps > 0:
        raise InputError("total_steps must be positive", value=str(total_steps), place=model)
    epochs = epochs_of(model, batch, total_steps)
    if mode == "static":
        return ((epochs, batch),)
    family = _family(model)
    return _regimes(family, batch, gpus, mode, epochs, last_as_first)


@functools.cache
def _regimes(
    family: str, batch: int, gpus: int, mode: str, epochs: int, last_as_first: bool
) -> tuple[tuple[int, int], ...]:
    """Return the regimes of a kind of job; results are cached, since a trace has few distinct kinds."""
    stretches = list(_accordion(family, batch, epochs) if mode == "accordion" else _gns(family, batch, gpus, epochs))
    if mode == "gns" and last_as_first and sum(epoch < epochs for epoch in growth_of(family, batch, gpus)) > 1:
        length, size = stretches.pop()
        stretches += [(length - 1, size), (1, batch)]
    of_one_size = groupby((each for each in stretches if each[0]), key=itemgetter(1))
    return tuple((sum(length for length, _ in run), size) for size, run in of_one_size)


def is_critical(family: str, batch: int, epoch: int) -> bool:
    """Return whether an epoch is critical in Accordion's table, apart from the rule for the first 30 %."""
    if family == "ResNet-18":
        return epoch < (20 if batch == LARGEST_BATCH[family] else 10) or 150 <= epoch < 160 or 250 <= epoch < 260
    if family == "ResNet-50":
        return epoch % 30 < 10 and epoch < 600
    if family == "LM":
        return epoch < 10
    if family == "Recommendation":
        first = 30 if batch <= 1024 else 40 if batch == 2048 else 10
        return epoch < first or 60 <= epoch < 70 or 80 <= epoch < 90
    return True


def growth_of(family: str, batch: int, gpus: int) -> Mapping[int, int]:
    """Return GNS's batch sizes for a job by the epoch from which each applies; empty: the batch never grows."""
    return _GNS.get(family, {}).get(gpus, {}).get(batch, {})


def _accordion(family: str, batch: int, epochs: int) -> Iterator[tuple[int, int]]:
    """Yield Accordion's regimes as (epochs, batch size)."""
    largest = max(batch, LARGEST_BATCH.get(family, batch))
    at = min(epochs, math.floor(CRITICAL_SHARE * epochs) + 1)
    yield at, batch
    while at < epochs:
        end = min(epochs, at - at % TABLE_STEP + TABLE_STEP)
        yield end - at, batch if is_critical(family, batch, at) else largest
        at = end


def _gns(family: str, batch: int, gpus: int, epochs: int) -> Iterator[tuple[int, int]]:
    """Yield GNS's regimes as (epochs, batch size)."""
    growth = growth_of(family, batch, gpus)
    at, size = 0, batch
    for epoch in sorted(epoch for epoch in growth if epoch < epochs):
        yield epoch - at, size
        at, size = epoch, growth[epoch]
    yield epochs - at, size


def _family(model: str) -> str:
    family, _ = split_model(model)
    if family not in SAMPLES:
        raise InputError(f"a model that adapts must be one of {', '.join(SAMPLES)}", value=f'"{model}"')
    return family
