"""Perturbations of the inputs of a stage, by argument; each returns a changed copy."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eunomia import Allocation, ByBundle, ByCurve, BySize, Grants, Menus, Scores, Valuations
from eunomia.contract.allocations import DeviceShares, TimeShares
from eunomia.units import NONE


def sizes(menus: Menus) -> Menus:
    """Every size of every menu is half of what it was, at least 1."""
    points = dataclasses.replace(menus.points, gpus=np.maximum(menus.points.gpus // 2, 1))
    return dataclasses.replace(menus, points=points)


def rates(menus: Menus) -> Menus:
    """Every third curve is forty times as slow, the next one four times."""
    factor = np.array([40.0, 4.0, 1.0])[menus.points.curve % 3]
    return dataclasses.replace(menus, points=dataclasses.replace(menus.points, rate=menus.points.rate / factor))


def types(menus: Menus) -> Menus:
    """Points of the last GPU type are 40, 4 or 1 times as slow, by curve; unchanged without points by type."""
    points = menus.points
    last = (points.gpu_type >= 1) & (points.gpu_type == points.gpu_type.max(initial=NONE))
    factor = np.where(last, np.array([40.0, 4.0, 1.0])[points.curve % 3], 1.0)
    return dataclasses.replace(menus, points=dataclasses.replace(points, rate=points.rate / factor))


def cpus(menus: Menus) -> Menus:
    """Points need a third of the CPUs and of the memory; unchanged without points by these."""
    points = menus.points
    less = {name: getattr(points, name) / 3.0 for name in ("cpus", "memory_gib")}
    return dataclasses.replace(menus, points=dataclasses.replace(points, **less))


def regimes(menus: Menus) -> Menus:
    """Coming regimes of every second job are 40 times as slow; unchanged without any."""
    coming = menus.regimes
    if coming is None:
        return menus
    rate = coming.rate / np.where(coming.job % 2, 40.0, 1.0)
    return dataclasses.replace(menus, regimes=dataclasses.replace(coming, rate=rate))


def values(valuations: Valuations) -> Valuations:
    """An order is reversed; tables of bids are assigned to other claims."""
    return dataclasses.replace(valuations, forms=tuple(_turned(form) for form in valuations.forms))


def _turned(form: Any) -> Any:
    if isinstance(form, Scores):
        return Scores(score=-form.score)
    if isinstance(form, ByCurve):
        return _turned(form.derive(BySize))
    if isinstance(form, ByBundle):
        kept = [list(form.bundles(claim)) if claim else [] for claim in range(form.now.size)]
        return ByBundle.of(form.classes, form.now, kept)
    columns = {field.name: getattr(form, field.name) for field in dataclasses.fields(form)}
    dealt = {name: np.roll(item, 1, axis=0) for name, item in columns.items() if np.ndim(item) and name != "claim"}
    return dataclasses.replace(form, **dealt)


def order(allocation: Allocation) -> Allocation:
    """The order of service is reversed."""
    return dataclasses.replace(allocation, order=allocation.order[::-1].copy())


def amounts(allocation: Allocation) -> Allocation:
    """Each claim gets the grant of the one before it; pins stay where they were."""
    amount = allocation.amount
    if isinstance(amount, Grants):
        rolled: Any = dataclasses.replace(amount, gpus=np.roll(amount.gpus, 1), pins=None)
    elif isinstance(amount, TimeShares):
        rolled = TimeShares(share=np.roll(amount.share, 1, axis=0), since=amount.since)
    else:
        rolled = DeviceShares(gpus=np.roll(amount.gpus, 1, axis=0), since=amount.since)
    return dataclasses.replace(allocation, amount=rolled)


def ranges(allocation: Allocation) -> Allocation:
    """Each claim's range of CPUs and memory goes to half and to a quarter; unchanged without ranges."""
    amount = allocation.amount
    if not isinstance(amount, Grants) or amount.cpus is None or amount.memory_gib is None:
        return allocation
    cpus, memory = (
        dataclasses.replace(part, least=part.least / 4.0, most=part.most / 2.0)
        for part in (amount.cpus, amount.memory_gib)
    )
    return dataclasses.replace(allocation, amount=dataclasses.replace(amount, cpus=cpus, memory_gib=memory))


PERTURBATIONS: Mapping[str, Mapping[str, Callable[[Any], Any]]] = {
    "menus": {"sizes": sizes, "rates": rates, "types": types, "regimes": regimes, "cpus": cpus},
    "valuations": {"values": values},
    "allocation": {"order": order, "amounts": amounts, "ranges": ranges},
}
