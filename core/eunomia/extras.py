"""Optional extras of the installation: the modules of each extra, and the error for a module that is missing.

``pip install eunomia`` installs what a simulation needs. Everything else needs an extra, such as ``eunomia[live]``.
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
    "kubernetes": ("kubernetes", "urllib3"),
    "ray": ("ray",),
    "market": ("eunomia_market",),
    "testing": ("hypothesis", "pytest"),
}
"""The modules of each extra; ``pyproject.toml`` lists the packages that contain them."""


def extra_of(module: str) -> str | None:
    """Return the extra that installs a module or its package, or None if no extra installs it.

    Args:
        module: the import name; ``google``, which several packages share, counts as protobuf's.
    """
    for extra, modules in EXTRAS.items():
        if any(f"{module}.".startswith(f"{one}.") or f"{one}.".startswith(f"{module}.") for one in modules):
            return extra
    return None


def remedy(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'eunomia[{extra}]'"


def is_installed(module: str) -> bool:
    """Return whether a module is installed, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # its parent is missing, or a module without a spec has its name
        return False


def require(modules: Iterable[str], *, of: str) -> None:
    """Check that modules are installed; commands call this before they change anything.

    Args:
        modules: import names.
        of: the command or feature that needs them, such as ``eunomia serve``.

    Raises:
        InputError: a module is not installed; the error names its extra and the command that installs it.
    """
    for module in modules:
        if not is_installed(module):
            raise _missing(module, of)


def lacking(error: ImportError, *, of: str) -> InputError | None:
    """Return the error to show if an import failed because an extra is missing; None: it failed for another reason.

    Args:
        error: the exception of the failed import.
        of: the command or feature that imports the module.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    return None if extra_of(error.name) is None or is_installed(error.name) else _missing(error.name, of)


def _missing(module: str, of: str) -> InputError:
    if (extra := extra_of(module)) is None:
        return InputError(f"{of} must find the module {module}", value="none")
    return InputError(f'{of} needs the extra "{extra}": {remedy(extra)}', value=f"no module {module}")
