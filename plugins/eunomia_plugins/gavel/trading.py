"""The trades of Gandiva-fair (EuroSys'20): users with a small speedup on fast GPUs sell them for slow ones."""

from itertools import combinations
from typing import Literal

import numpy as np

from eunomia.units import Reals

NOTHING = 1e-12

Price = Literal["paper", "second"]
"""Price of a fast GPU in slow ones; the two rules differ if a pair of types has only one buyer."""


def trade(gpus: Reals, speed: Reals, price: Price = "paper") -> Reals:
    """Trade GPUs of each pair of types until no owner gains by another trade.

    Of the owners with slow GPUs, the one with the highest speedup buys; of those with fast GPUs, the one with the
    lowest sells. A fast GPU costs the second-highest speedup of a buyer, in slow GPUs. With no other buyer it costs the
    mean of the two speedups (``paper``: this reproduces the tables of OEF's equation (1)), or the seller's own speedup
    (``second``: the second-highest of all that take part; the buyer has the whole gain).

    Args:
        gpus: [owner, type] GPUs at the start.
        speed: [owner, type] speed of its jobs.
        price: of a fast GPU where there is one buyer.

    Returns:
        [owner, type] GPUs at the end; the sums by type are the same.
    """
    found = gpus.astype(float).copy()
    by_speed = np.argsort(-speed.mean(axis=0), kind="stable").tolist()
    for fast, slow in combinations(by_speed, 2):
        _trade_pair(found, fast, slow, speed[:, fast] / np.maximum(speed[:, slow], NOTHING), price)
    return found


def _trade_pair(gpus: Reals, fast: int, slow: int, speedup: Reals, price: Price) -> None:
    """Trade GPUs of two types in place; each trade uses up the GPUs of a seller or a buyer."""
    for _ in range(2 * speedup.size):
        sellers = np.flatnonzero(gpus[:, fast] > NOTHING)
        buyers = np.flatnonzero(gpus[:, slow] > NOTHING)
        if sellers.size == 0 or buyers.size == 0:
            return
        seller = int(sellers[speedup[sellers].argmin()])
        buyer = int(buyers[speedup[buyers].argmax()])
        if speedup[buyer] <= speedup[seller] * (1.0 + 1e-9):
            return
        others = buyers[(buyers != buyer) & (speedup[buyers] > speedup[seller] * (1.0 + 1e-9))]
        alone = (speedup[buyer] + speedup[seller]) / 2.0 if price == "paper" else speedup[seller]
        paid = max(float(speedup[others].max() if others.size else alone), NOTHING)
        sold = min(float(gpus[seller, fast]), float(gpus[buyer, slow]) / paid)
        gpus[seller] += _moved(gpus, fast, slow, -sold, sold * paid)
        gpus[buyer] += _moved(gpus, fast, slow, sold, -sold * paid)
        np.maximum(gpus, 0.0, out=gpus)


def _moved(gpus: Reals, fast: int, slow: int, more_fast: float, more_slow: float) -> Reals:
    change = np.zeros(gpus.shape[1])
    change[fast], change[slow] = more_fast, more_slow
    return change
