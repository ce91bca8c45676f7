"""Describes a measurement's machine and versions, and rejects profiles from another machine or version."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.local_machine import usable_cpus
from eunomia_testbed.performance.replay_profiles import Measurements
from eunomia_testbed.results.facts import versions_of

PACKAGES: Final = ("eunomia", "torch", "numpy")
"""Packages whose versions affect rates and costs."""


def machine_words(root: Path = Path("/")) -> str:
    """Return this machine as text: its usable cores and CPU model. Slot types are recorded with each rate.

    Args:
        root: folder with ``proc`` (for tests).
    """
    try:
        text = (root / "proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    models = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")]
    model = models[0] if models else "a CPU of unknown model"
    return f"{usable_cpus():g} cores of {model}"


def present_versions() -> Mapping[str, str]:
    """Return the versions of Python, the system and ``PACKAGES``."""
    return versions_of(*PACKAGES)


def check_measured(
    measured: Measurements, *, machine: str, versions: Mapping[str, str], place: str, anyway: bool = False
) -> None:
    """Check that a file of profiles was measured on this machine, with these versions.

    Args:
        measured: content of the file.
        machine: this machine, as returned by ``machine_words``.
        versions: the present versions.
        place: name of the file.
        anyway: log differences instead of refusing the file.

    Raises:
        InputError: the machine or a version differs; the error names all differences.
    """
    differences = [] if measured.machine == machine else [f'machine "{measured.machine}", here "{machine}"']
    for name in sorted({*measured.versions, *versions}):
        there, here = (given.get(name, "none") for given in (measured.versions, versions))
        if there != here:
            differences.append(f"{name} {there}, here {here}")
    if differences and not anyway:
        rule = "profiles must be of this machine and these versions (measure again, or give --anyway)"
        raise InputError(rule, value="; ".join(differences), place=place)
    if differences:
        structlog.get_logger().warning("profiles.of_another_machine", differences=differences, place=place)
