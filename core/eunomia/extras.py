"""Optional extras of the installation: the modules of each extra, and the error for a module that is missing.

``pip install eunomia`` brings what a simulation needs. Everything else comes with an extra, ``eunomia[live]`` for one.
"""

import importlib.util
from collections.abc import Iterable, Mapping
from typing import Final

from eunomia.errors import InputError

EXTRAS: Final[Mapping[str, tuple[str, ...]]] = {
    "live": (
        "cryptography",
        "google.protobuf",
        "grpc",
        "grpc_health",
        "grpc_reflection",
        "prometheus_client",
        "pynvml",
        "setproctitle",
        "sklearn",
        "tensorboard",
        "torch",
    ),
    "solvers": ("clarabel", "cvxpy", "gurobipy"),
    "fast": ("numba",),
    "optuna": ("optuna",),
    "market": ("eunomia_market",),
    "testing": ("hypothesis", "pytest"),
}
"""The modules of each extra; ``pyproject.toml`` lists the packages that they come from."""


def extra_of(module: str) -> str | None:
    """Return the extra that installs a module or its package; None: no extra installs it.

    Args:
        module: as an import names it; ``google``, which several packages share, counts as protobuf's.
    """
    for extra, modules in EXTRAS.items():
        if any(f"{module}.".startswith(f"{one}.") or f"{one}.".startswith(f"{module}.") for one in modules):
            return extra
    return None


def cure(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'eunomia[{extra}]'"


def is_installed(module: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent is missing, or a module stands for it that came from no file
        return False


def require(modules: Iterable[str], *, of: str) -> None:
    """Check that modules are installed, before anything is changed.

    Args:
        modules: as imports name them.
        of: what needs them, such as ``eunomia serve``.

    Raises:
        InputError: one of them is not installed; it names the extra and the command that installs it.
    """
    for module in modules:
        if not is_installed(module):
            raise _missing(module, of)


def lacking(error: ImportError, *, of: str) -> InputError | None:
    """Return the error for a failed import of a module of an extra; None: the import failed for another reason.

    Args:
        error: what the import raised.
        of: what imported it.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    return None if extra_of(error.name) is None or is_installed(error.name) else _missing(error.name, of)


def _missing(module: str, of: str) -> InputError:
    extra = extra_of(module)
    if extra is None:
        return InputError(f"{of} must find the module {module}", value="none")
    return InputError(f'{of} needs the extra "{extra}": {cure(extra)}', value=f"no module {module}")
