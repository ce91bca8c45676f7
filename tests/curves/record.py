"""Record learning curves: ``PYTHONPATH=tests python -m curves.record --out curves.csv``.

Each trial runs the demo's own training script in a process that is forked from this one after torch is imported. Its
logs are read as the app master reads them. Trials use the seeds of the search and one thread each, so that equal
versions on equal processors record equal curves.
"""

import argparse
import multiprocessing
import os
import platform
import runpy
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

from curves.searches import MAX_ITERATIONS, SEARCHES, SEED, TRIALS, parameters, search_seed
from curves.table import RecordedCurve, read, write
from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.space import Parameters, arguments, trial_seed
from eunomia_appmaster.profiler.log_folder import LogFolder

_IMPORTS = ("torch", "torch._dynamo", "torch.utils.tensorboard", "eunomia_testbed.workloads.image.digits")
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def main(argv: Sequence[str] | None = None) -> int:
    """Record all searches, or the named ones."""
    parser = argparse.ArgumentParser(prog="PYTHONPATH=tests python -m curves.record", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="the CSV file to write")
    parser.add_argument("--model", action="append", choices=list(SEARCHES), help="default: all")
    parser.add_argument("--trials", type=int, default=TRIALS, help="of each model")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--max-iterations", type=int, default=MAX_ITERATIONS)
    given = parser.parse_args(argv)
    try:
        record(given.out, given.model or list(SEARCHES), given.trials, given.seed, given.max_iterations)
    except EunomiaError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    return 0


def record(out: Path, models: Sequence[str], trials: int, seed: int, max_iterations: int) -> None:
    """Train every trial of the models, one after another, and write their curves; an interrupted file is continued.

    Raises:
        InputError: fewer than one trial or iteration, a file of another command, or a training that failed.
    """
    if min(trials, max_iterations) < 1:
        raise InputError("trials and max-iterations must be at least 1", value=str(min(trials, max_iterations)))
    os.environ.update(_THREADS)
    for name in _IMPORTS:
        import_module(name)
    provenance = _provenance(models, trials, seed, max_iterations)
    curves = _recorded(out, provenance)
    for model in models:
        for trial in range(len([curve for curve in curves if curve.model == model]) + 1, trials + 1):
            curves.append(_train(model, trial, seed, max_iterations))
            write(out, curves, provenance)
            sys.stderr.write(f"{model}/{trial} {curves[-1].parameters}: {max(curves[-1].accuracies):.3f}\n")
    sys.stderr.write(f"{sum(os.times()[:4]):.0f} s CPU\n")


def _recorded(out: Path, provenance: Sequence[str]) -> list[RecordedCurve]:
    """Return the curves that an interrupted recording by the same command wrote."""
    if not out.exists():
        return []
    if out.read_text().splitlines()[: len(provenance)] != [f"# {line}" for line in provenance]:
        raise InputError("a file to go on with must be of the same command and versions", value=str(out))
    return list(read(out))


def _train(model: str, trial: int, seed: int, max_iterations: int) -> RecordedCurve:
    drawn = parameters(model, trial, seed)
    with tempfile.TemporaryDirectory(prefix="eunomia-curves-") as folder:
        process = multiprocessing.get_context("fork").Process(
            target=_run_script, args=(model, drawn, trial_seed(search_seed(model, seed), trial), max_iterations, folder)
        )
        process.start()
        process.join()
        if process.exitcode:
            raise InputError("a training must end well", value=f"exit {process.exitcode}", place=f"{model}/{trial}")
        return _read(Path(folder) / "logs", model, trial, drawn)


def _run_script(model: str, drawn: Parameters, seed: int, max_iterations: int, folder: str) -> None:
    """Run the script in the forked process, started as an app master starts it."""
    os.environ.update(EUNOMIA_RUN_DIR=folder, EUNOMIA_SEED=str(seed), EUNOMIA_MAX_ITERATIONS=str(max_iterations))
    module = SEARCHES[model].module
    sys.argv = [module, *arguments(drawn)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _read(logs: Path, model: str, trial: int, drawn: Parameters) -> RecordedCurve:
    folder = LogFolder(logs)
    folder.poll()
    accuracy, loss = folder.series("val/accuracy"), folder.series("val/loss")
    return RecordedCurve(
        model=model,
        trial=trial,
        parameters=" ".join(argument.removeprefix("--") for argument in arguments(drawn)),
        iterations=tuple(map(int, accuracy.step)),
        accuracies=tuple(map(float, accuracy.value)),
        losses=tuple(map(float, loss.value)),
    )


def _provenance(models: Sequence[str], trials: int, seed: int, max_iterations: int) -> list[str]:
    options = f"--trials {trials} --seed {seed} --max-iterations {max_iterations}"
    chosen = "" if list(models) == list(SEARCHES) else "".join(f" --model {model}" for model in models)
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "scikit-learn", "numpy"))
    return [
        "Learning curves of the demo's models on scikit-learn's digits, recorded by Eunomia itself:",
        f"PYTHONPATH=tests python -m curves.record --out FILE {options}{chosen}",
        f"Python {platform.python_version()}, {libraries}, {platform.machine()}, one thread a training.",
        "Parameters are drawn from the spaces in curves.searches; an iteration is an optimizer step.",
    ]


if __name__ == "__main__":
    sys.exit(main())
