"""Measured rates and costs of the programs that a replay runs, and the TOML file that keeps them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia.platform.toml_bounds import LARGE, parse_toml
from eunomia.platform.toml_text import toml_key, toml_value
from eunomia.words import shown
from eunomia_testbed.performance.reading import number, whole

SCHEMA: Final = "eunomia/replay-profiles@1"


@value
class ProgramRate:
    """The speed of a program in one setting, alone on the machine."""

    program: str
    batch_size: int
    """Global batch size."""
    slots: int
    slot_type: str
    iterations_per_second: float
    """Iterations per second of the whole job while it trains, excluding its start and its saves."""
    samples: int = 1
    """Number of starts of jobs that were measured."""
    spread: float = 0.0
    """Standard deviation of the time per iteration over starts, as a fraction of the mean; 0 for a single start."""


@value
class Costs:
    """The durations, in seconds, of a job's transitions and of the arbiter's decisions."""

    start_seconds: float = 0.0
    """Seconds from the order to the first step of a job that the launcher's zygote starts."""
    exec_start_seconds: float = 0.0
    """Seconds from the order to the first step of a job that starts in a new interpreter."""
    save_seconds: float = 0.0
    """Seconds from the order to suspend a job until its checkpoint is complete."""
    restore_seconds: float = 0.0
    """Seconds that reading a checkpoint adds to ``start_seconds``."""
    release_seconds: float = 0.0
    """Seconds from the end of a job's processes until its slots can be leased again."""
    decide_seconds: float = 0.0
    """Seconds from the event that causes a round until its orders are given: deciding, auction and messages."""
    arrive_seconds: float = 0.0
    """Seconds from the arrival of an app until its app master has started and has added a job."""
    finish_seconds: float = 0.0
    """Seconds from a job's last step until its processes have ended: evaluation and last checkpoint."""
    pause_seconds: float = 0.0
    """Seconds for which a job does not train during a live resize."""
    join_seconds: float = 0.0
    """Seconds for which a growing job still trains at its old size, until its new workers are ready (live resize)."""


@value
class CostSpread:
    """The spread of one cost over its samples."""

    cost: str
    """Name of the cost, as in ``Costs`` without its unit."""
    program: str
    """The program; empty: all programs."""
    mean_seconds: float
    median_seconds: float
    p95_seconds: float
    samples: int


@value
class Profiles:
    """Measured rates of programs.

    ``slot_speeds`` maps each slot type to its pace, as a fraction of a core; the pace of a GPU or an unpaced slot is 0.
    """

    rates: tuple[ProgramRate, ...]
    slot_speeds: Mapping[str, float]

    @property
    def spread(self) -> float:
        """Return the relative standard deviation of the time per iteration over starts in all settings; 0: unknown."""
        free = sum(rate.samples - 1 for rate in self.rates)
        squares = math.fsum((rate.samples - 1) * rate.spread**2 for rate in self.rates)
        return math.sqrt(squares / free) if free else 0.0

    def without_spread(self) -> Self:
        """Return the profiles with all spreads 0, so that every start runs at the mean rate."""
        return dataclasses.replace(self, rates=tuple(dataclasses.replace(rate, spread=0.0) for rate in self.rates))

    @property
    def programs(self) -> tuple[str, ...]:
        """Return the measured programs in the order of the rates."""
        return tuple(dict.fromkeys(rate.program for rate in self.rates))

    def points(self, program: str, batch_size: int, slot_type: str) -> dict[int, float]:
        """Return the measured iterations per second by number of slots; empty: none are measured."""
        key = (program, batch_size, slot_type)
        return {
            rate.slots: rate.iterations_per_second
            for rate in self.rates
            if (rate.program, rate.batch_size, rate.slot_type) == key
        }

    def rate(self, program: str, batch_size: int, slots: int, slot_type: str) -> float:
        """Return the iterations per second of a program in a setting.

        Between two measured numbers of slots, the rate is interpolated linearly; more slots than measured do not make
        it faster.

        Raises:
            InputError: the program has no rate at this batch size on this slot type, or only for more slots.
        """
        from eunomia_testbed.performance.curves import Curve

        points = self.points(program, batch_size, slot_type)
        found = Curve.of(points).at(slots) if points else 0.0
        if found <= 0.0:
            raise InputError(
                "a program must have a measured rate in each setting that it runs in",
                value=f"none of {program} with batch size {batch_size} on {slots} x {slot_type}",
                place="profiles",
            )
        return found


@value
class Measurements:
    """The profiles and costs of a machine, as stored in a file."""

    profiles: Profiles
    costs: Costs
    machine: str
    """The machine's slots in words."""
    versions: Mapping[str, str]
    """Versions of Python, the system and the packages, by name."""
    measured_at: str
    """Time of the measurement, UTC."""
    program_costs: Mapping[str, Costs]
    """Costs by program, for programs whose costs were measured separately."""
    spreads: tuple[CostSpread, ...] = ()
    """Mean, median, 95th percentile and number of samples of each cost."""
    loop_seconds: float | None = None
    """CPU seconds of the pace meter's calibration loop during the measurement; None: unknown."""
    pace: float | None = None
    """Lowest pace of a slot in the measurement, as a fraction of its nominal pace; None: unknown, or unpaced slots."""

    def costs_of(self, program: str) -> Costs:
        """Return the costs of a program; if they were not measured separately, those of all programs."""
        return self.program_costs.get(program, self.costs)

    def to_toml(self) -> str:
        """Return the file's text, which ``parse`` reads back."""
        rates = [f"  {toml_value(_plain(rate))}," for rate in self.profiles.rates]
        spreads = [f"  {toml_value(_plain(spread))}," for spread in self.spreads]
        lines = [
            f"schema = {toml_value(SCHEMA)}",
            f"machine = {toml_value(self.machine)}",
            f"measured_at = {toml_value(self.measured_at)}",
            *(
                f"{name} = {toml_value(found)}"
                for name, found in (("loop_seconds", self.loop_seconds), ("pace", self.pace))
                if found is not None
            ),
            "rates = [", *rates, "]",
            "spreads = [", *spreads, "]",
            *_table("slot_speeds", self.profiles.slot_speeds),
            *_table("versions", self.versions),
            *_table("costs", _plain(self.costs)),
        ]  # fmt: skip
        for program, costs in self.program_costs.items():
            lines += _table(f"program_costs.{toml_key(program)}", _plain(costs))
        return "\n".join([*lines, ""])

    @classmethod
    def parse(cls, text: str, *, place: str) -> Self:
        """Read the file's text.

        Args:
            text: the text.
            place: name of the file, for error messages.

        Raises:
            InputError: the text is not such a file, or a value is out of range.
        """
        tree = parse_toml(text, "a file of profiles", place=place, bounds=LARGE)
        if tree.get("schema") != SCHEMA:
            rule = f"a file of profiles must have schema = {toml_value(SCHEMA)}, as eunomia replay writes it"
            raise InputError(rule, value=shown(tree.get("schema")), place=place)
        rows = tree.get("rates")
        if not isinstance(rows, list) or not rows:
            raise InputError("rates must be a list of tables, at least one", value=shown(rows), place=place)
        speeds = {
            name: number(speed, name=name, place=f"{place}, slot_speeds")
            for name, speed in _mapping(tree, "slot_speeds", place).items()
        }
        rates = tuple(_rate(row, f"{place}, rates[{row_number}]") for row_number, row in enumerate(rows))
        _check_rates(rates, speeds, place)
        return cls(
            profiles=Profiles(rates=rates, slot_speeds=speeds),
            costs=_costs(_mapping(tree, "costs", place), f"{place}, costs"),
            machine=str(tree.get("machine", "")),
            versions={name: str(version) for name, version in _mapping(tree, "versions", place).items()},
            measured_at=str(tree.get("measured_at", "")),
            program_costs={
                program: _costs(costs, f"{place}, program_costs.{program}")
                for program, costs in _mapping(tree, "program_costs", place).items()
            },
            spreads=_spreads(tree.get("spreads", []), place),
            loop_seconds=_optional(tree, "loop_seconds", place),
            pace=_optional(tree, "pace", place),
        )


def read_measured(path: Path) -> Measurements:
    """Read a file of profiles and costs.

    Raises:
        InputError: the file cannot be read, or is not such a file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("a file of profiles must be readable text", value=str(error), place=str(path)) from error
    return Measurements.parse(text, place=str(path))


# -- small parts

_Row = ProgramRate | Costs | CostSpread


def _plain(item: _Row) -> dict[str, object]:
    return {name: getattr(item, name) for name in _names(type(item))}


def _names(kind: type[_Row]) -> Sequence[str]:
    return list(kind.__annotations__)


def _table(name: str, content: Mapping[str, object]) -> list[str]:
    return ["", f"[{name}]", *(f"{toml_key(key)} = {toml_value(item)}" for key, item in content.items())]


def _mapping(tree: Mapping[str, Any], key: str, place: str) -> Mapping[str, Any]:
    found = tree.get(key, {})
    if not isinstance(found, Mapping):
        raise InputError(f"{key} must be a table", value=shown(found), place=place)
    return found


def _check_names(row: object, kind: type[_Row], place: str) -> Mapping[str, Any]:
    if not isinstance(row, Mapping):
        raise InputError("it must be a table", value=shown(row), place=place)
    unknown = [key for key in row if key not in _names(kind)]
    if unknown:
        raise InputError(f"keys must be among {', '.join(_names(kind))}", value=shown(unknown[0]), place=place)
    return row


def _rate(row: object, place: str) -> ProgramRate:
    found = _check_names(row, ProgramRate, place)
    for name in ("program", "slot_type"):
        if not isinstance(found.get(name), str) or not found[name]:
            raise InputError(f"{name} must be a name", value=shown(found.get(name)), place=place)
    return ProgramRate(
        program=found["program"],
        batch_size=whole(found.get("batch_size"), name="batch_size", place=place),
        slots=whole(found.get("slots"), name="slots", place=place),
        slot_type=found["slot_type"],
        iterations_per_second=number(
            found.get("iterations_per_second"), name="iterations_per_second", place=place, strictly=True
        ),
        samples=whole(found.get("samples", 1), name="samples", place=place),
        spread=number(found.get("spread", 0.0), name="spread", place=place),
    )


def _costs(row: object, place: str) -> Costs:
    found = _check_names(row, Costs, place)
    return Costs(**{name: number(seconds, name=name, place=place) for name, seconds in found.items()})


def _spreads(rows: object, place: str) -> tuple[CostSpread, ...]:
    if not isinstance(rows, list):
        raise InputError("spreads must be a list of tables", value=shown(rows), place=place)
    return tuple(_spread(row, f"{place}, spreads[{row_number}]") for row_number, row in enumerate(rows))


def _spread(row: object, place: str) -> CostSpread:
    found = _check_names(row, CostSpread, place)
    names = ("mean_seconds", "median_seconds", "p95_seconds")
    times = {name: number(found.get(name), name=name, place=place) for name in names}
    return CostSpread(
        cost=str(found.get("cost", "")),
        program=str(found.get("program", "")),
        samples=whole(found.get("samples"), name="samples", place=place),
        **times,
    )


def _optional(tree: Mapping[str, Any], key: str, place: str) -> float | None:
    given = tree.get(key)
    return None if given is None else number(given, name=key, place=place, strictly=True)


def _check_rates(rates: Sequence[ProgramRate], speeds: Mapping[str, float], place: str) -> None:
    """Check that each setting has one rate, and that each slot type has a pace."""
    seen: set[tuple[str, int, int, str]] = set()
    for rate in rates:
        key = (rate.program, rate.batch_size, rate.slots, rate.slot_type)
        if key in seen:
            text = f"{rate.program} with batch size {rate.batch_size} on {rate.slots} x {rate.slot_type}"
            raise InputError("a setting must have one rate", value=f"two of {text}", place=place)
        seen.add(key)
        if rate.slot_type not in speeds:
            rule = "slot_speeds must have the pace of each slot type of the rates"
            raise InputError(rule, value=f"none of {rate.slot_type}", place=place)
    if any(not math.isfinite(speed) or speed > 1.0 for speed in speeds.values()):
        raise InputError("a pace must be at most 1, as a fraction of a core", place=f"{place}, slot_speeds")
