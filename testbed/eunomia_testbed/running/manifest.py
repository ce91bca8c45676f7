"""Hashes a run's inputs, since an interrupted run may be resumed only with the same inputs."""

import hashlib
import json
import pickle
import re
from pathlib import Path
from typing import Final

import numpy as np

from eunomia import __version__
from eunomia.errors import InputError
from eunomia_testbed.running.plan import Plan
from eunomia_testbed.workload import Workload

NAME: Final = ".resume.json"
_WORDS: Final = {
    "version": "another version of Eunomia",
    "workload": "another workload",
    "cluster": "another cluster",
    "policies": "other policies or settings",
    "seeds": "other seeds",
    "loads": "other loads",
    "options": "other options of the simulation",
    "models": "other throughputs",
    "resampling": "other resamples or windows",
    "judging": "other rho, limit or form of the tables",
}


def manifest_of(plan: Plan) -> dict[str, str]:
    """Return hashes or texts, by kind of input, of all inputs on which the plan's results depend."""
    workloads = {id(workload): workload for workload in plan.workloads.values()}
    return {
        "version": __version__,
        "workload": _sha(*(workload_hash(workload) for workload in workloads.values())),
        "cluster": _sha(plan.cluster_text),
        "policies": _sha(*(f"{name}\n{profile.resolved()}" for name, profile in plan.profiles.items())),
        "seeds": " ".join(map(str, plan.seeds)),
        "loads": " ".join(f"{load:g}" for load in plan.loads),
        "options": _sha(re.sub(r" at 0x[0-9a-f]+", "", repr((plan.options, plan.peer)))),
        "models": "none" if plan.models is None else hashlib.sha256(pickle.dumps(plan.models)).hexdigest(),
        "resampling": "none" if plan.resampling is None else plan.resampling.identity,
        "judging": f"{plan.rho} {plan.unfair_above:g} {plan.csv}",
    }


def write_manifest(folder: Path, manifest: dict[str, str]) -> None:
    """Write a manifest to a result folder as ``.resume.json``."""
    (folder / NAME).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def check_manifest(folder: Path, manifest: dict[str, str]) -> None:
    """Check that a folder's manifest matches the current plan.

    Raises:
        InputError: the folder has no manifest, or its manifest differs from the plan's.
    """
    path = folder / NAME
    rule = "--resume must name a folder that an interrupted simulation left"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(rule, value=f"{folder}, without {NAME}", place="--out") from error
    if not isinstance(found, dict):
        raise InputError(rule, value=f"{NAME} that holds no table", place="--out")
    others = [word for key, word in _WORDS.items() if found.get(key) != manifest[key]]
    if others:
        rule = "--resume must go on with the same command on the same files"
        raise InputError(rule, value=", ".join(others), place=str(folder))


def workload_hash(workload: Workload) -> str:
    """Return the SHA-256 of a workload's content as hexadecimal text."""
    digest = hashlib.sha256()
    for part in (workload.users, workload.apps, workload.jobs):
        for name in part.__dataclass_fields__:
            digest.update(f"\0{name}\0".encode())
            column = getattr(part, name)
            if isinstance(column, np.ndarray) and column.dtype != object:
                digest.update(np.ascontiguousarray(column).data)
            elif column is not None:
                digest.update("\0".join(map(str, column)).encode())
    assumed = sorted((name, other or "") for name, other in workload.assumed_speeds.items())
    names = (workload.models, workload.reference_type, assumed)
    for rest in (*names, sorted(workload.regimes.items()), sorted(workload.searches.items())):
        digest.update(repr(rest).encode())
    if workload.exclusive_seconds is not None:
        digest.update(np.ascontiguousarray(workload.exclusive_seconds).data)
    return digest.hexdigest()


def _sha(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
