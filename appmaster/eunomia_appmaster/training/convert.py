"""``python -m eunomia_appmaster.training.convert FOLDER``: converts checkpoints of earlier versions to plain values.

Such a checkpoint has NumPy's random state as an array, and may contain objects of any class of its script. Since
reading it may run code in it, it is converted only on demand: by the owner of the checkpoint, while its job does not
run.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.checkpoints import Checkpoint, CheckpointStore
from eunomia_appmaster.training import randomness
from eunomia_appmaster.training.plain import plain


def convert(folder: Path) -> list[Path]:
    """Convert the checkpoints of all stores in a folder; plain ones stay unchanged.

    Returns:
        The converted files.

    Raises:
        InputError: there is no checkpoint; or one contains values that are not plain, and stays unchanged.
    """
    stores = [CheckpointStore(path, keep=1_000_000) for path in _stores(folder)]
    if not stores:
        raise InputError("a folder to convert must hold checkpoints", value="none", place=str(folder))
    return [found.path for store in stores for found in store.good() if _convert(store, found)]


def _stores(folder: Path) -> Iterator[Path]:
    yield from sorted({path.parent for path in folder.rglob("*.pt") if path.stem.isdecimal()})


def _convert(store: CheckpointStore, found: Checkpoint) -> bool:
    try:
        torch.load(found.path, map_location="cpu", weights_only=True)
    except Exception:  # torch raises several kinds
        held: dict[str, Any] = torch.load(found.path, map_location="cpu", weights_only=False)
    else:
        return False
    for part in filter(None, (held, held.get("redo"))):
        part["randomness"] = [randomness.as_plain(states) for states in part["randomness"]]
    made = plain(held, str(found.path))
    store.save(found.step, lambda path: torch.save(made, path), incarnation=found.incarnation, metric=found.metric)
    return True


def main() -> int:
    """Convert checkpoints, and print which; exit code 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m eunomia_appmaster.training.convert", description=__doc__)
    parser.add_argument("folder", type=Path, help="of an app, a job, or checkpoints; its jobs must not run")
    try:
        converted = convert(parser.parse_args().folder)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    sys.stdout.write("".join(f"{path}: converted\n" for path in converted) or "all are plain already\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
