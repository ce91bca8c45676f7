"""Reads measured speeds from files in several published formats, which are recognized by their content."""

import re
from pathlib import Path
from typing import Final

from eunomia.errors import InputError
from eunomia_testbed.performance.gavel import GavelThroughputs
from eunomia_testbed.performance.reading import read_text
from eunomia_testbed.performance.scaling import ELASTICFLOW_CORNER, AfsScaling, ElasticFlowTables
from eunomia_testbed.performance.speeds import PerformanceModel
from eunomia_testbed.performance.synergy import SynergyProfiles

__all__ = ["AfsScaling", "ElasticFlowTables", "GavelThroughputs", "SynergyProfiles", "read_performance"]

_RULE: Final = (
    "measured speeds must be Gavel's JSON, AFS' CSV with step_time_s, "
    "a folder of ElasticFlow's throughputs_<GPU type>, or Synergy's with profiles.csv and models.csv"
)


def read_performance(path: Path | str) -> PerformanceModel:
    """Read measured speeds in any known format.

    Args:
        path: a file, gzipped or not, or a folder.

    Raises:
        InputError: the file is missing, its format is unknown, or the format's reader rejects it.
    """
    root = Path(path)
    try:
        is_folder = root.is_dir()
    except OSError as error:
        raise InputError("a file of measured speeds must be readable", value=error.strerror, place=str(path)) from error
    return _folder(root) if is_folder else _file(root)


def _folder(root: Path) -> PerformanceModel:
    if (root / "profiles.csv").exists():
        return SynergyProfiles.read(root)
    if root.name.startswith("throughputs_") or any(root.glob("throughputs_*/*.csv")):
        return ElasticFlowTables.read(root)
    raise InputError(_RULE, value="a folder with neither", place=str(root))


def _file(path: Path) -> PerformanceModel:
    text = read_text(path)
    if text.lstrip().startswith("{"):
        return GavelThroughputs.read(path)
    if path.suffix == ".toml" or re.search(r"^\[\[point\]\]", text, re.MULTILINE):
        raise InputError(_RULE, value="a TOML file; rates of a kind are for eunomia profiles import", place=str(path))
    header = text.split("\n", 1)[0].strip()
    columns = header.split(",")
    if columns[0] == ELASTICFLOW_CORNER:
        return ElasticFlowTables.read(path)
    if "step_time_s" in columns:
        return AfsScaling.read(path)
    if "rel_tput" in columns or "iter_time_base_s" in columns:
        return SynergyProfiles.read(path)
    raise InputError(_RULE, value=f'the first line "{header[:60]}"', place=str(path))
