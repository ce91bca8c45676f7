"""The trades of Gandiva-fair (EuroSys'20): users with a small speedup on fast GPUs sell these for slow GPUs."""

from itertools import combinations
from typing import Literal

import numpy as np

from eunomia.units import Reals

NOTHING = 1e-12

Price = Literal["paper", "second"]
"""The rule for the price of a fast GPU in slow GPUs; the rules differ if a pair of types has only one buyer."""


def trade(gpus: Reals, speed: Reals, price: Price = "paper") -> Reals:
    """Trade GPUs of each pair of types until no owner gains by another trade.

    Among the owners of slow GPUs, the one with the highest speedup buys; among the owners of fast GPUs, the one with
    the lowest speedup sells. A fast GPU costs, in slow GPUs, the second-highest speedup of all buyers. If there is only
    one buyer, it costs the mean of the two speedups (``paper``, which reproduces the tables of OEF's equation (1)), or
    the seller's speedup (``second``: the second-highest of all participants, so that the buyer has the whole gain).

    Args:
        gpus: [owner, type] GPUs before the trades.
        speed: [owner, type] mean speed of the owner's jobs, relative to each job's best type.
        price: price of a fast GPU if there is only one buyer.

    Returns:
        [owner, type] GPUs after the trades; the sums by type are unchanged.
    """
    found = gpus.astype(float).copy()
    by_speed = np.argsort(-speed.mean(axis=0), kind="stable").tolist()
    for fast, slow in combinations(by_speed, 2):
        _trade_pair(found, fast, slow, speed[:, fast] / np.maximum(speed[:, slow], NOTHING), price)
    return found


def _trade_pair(gpus: Reals, fast: int, slow: int, speedup: Reals, price: Price) -> None:
    """Trade GPUs of two types in place; each trade exhausts the GPUs of the seller or the buyer."""
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
