"""The table of ``eunomia`` commands; a command is imported only when it is called, so ``--help`` imports none."""

import importlib
import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any, Final

from eunomia.errors import PluginError
from eunomia.extras import lacking, require
from eunomia.model.shapes import value

GROUP: Final = "eunomia.commands"
"""The entry-point group for commands of third-party packages; the name of an entry is the name of its command."""


@value
class Command:
    """A command of ``eunomia``: its name, its help line, and the function to import when it is called."""

    name: str
    help: str
    target: str
    """``module:function``: a function with Typer annotations, or a ``Typer`` app."""
    needs: tuple[str, ...] = ()
    """Modules of optional extras that the command needs."""

    def load(self) -> Callable[..., Any]:
        """Import the command.

        Raises:
            InputError: the command needs an extra that is not installed.
            PluginError: the import of a third-party command fails.
        """
        of = f"eunomia {self.name}"
        require(self.needs, of=of)
        module, _, attribute = self.target.partition(":")
        try:
            loaded: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            missing = lacking(error, of=of) if isinstance(error, ImportError) else None
            if missing is not None:
                raise missing from error
            raise PluginError(f'command "{self.name}" must load', value=str(error), place=self.target) from error
        return loaded


_CLIENT: Final = ("grpc", "google.protobuf")
_TRAINS: Final = (*_CLIENT, "prometheus_client", "torch", "tensorboard", "sklearn")
_TESTBED: Final = "eunomia_testbed"
_APPMASTER: Final = "eunomia_appmaster"
_ENGINES: Final = "eunomia_engines"


def _command(name: str, what: str, *needs: str, package: str = _TESTBED) -> Command:
    """Return a command whose module and function are both called ``name``; ``needs`` are the modules it needs."""
    return Command(name=name, help=what, target=f"{package}.commands.{name}:{name}", needs=needs)


def _calls_arbiter(name: str, what: str, *more: str, package: str = _APPMASTER) -> Command:
    """Return a command that calls an arbiter, and needs ``more`` modules."""
    return _command(name, what, *_CLIENT, *more, package=package)


BUILT_IN: Final = (
    Command(
        name="demo",
        help="Run four apps on this machine under Themis and watch them share it.",
        target="eunomia_testbed.demo.command:demo",
        needs=_TRAINS,
    ),
    _command("example", "Write a small trace and a cluster file, to try things on."),
    _command("simulate", "Simulate a workload on a described cluster, under one or many policies."),
    Command(
        name="replay",
        help="Run a trace with real training on this machine, and simulate it too.",
        target="eunomia_testbed.replay.command:replay",
        needs=_TRAINS,
    ),
    _command("compare", "Compare two simulated policies, with intervals over seeds."),
    _command("advise", "Say which policy suits a trace on a cluster, by goal."),
    _command("audit", "Test what a policy promises its users, and search for lies that pay."),
    Command(
        name="reproduce",
        help="Measure the claims of a paper again, such as themis.",
        target="eunomia_testbed.reproduce.command:app",
    ),
    _command("serve", "Run the arbiter and this machine's launcher.", *_CLIENT, "prometheus_client"),
    _command("report", "Write tables and a page of what an arbiter has served."),
    _command(
        "certificates",
        "Make certificates for an arbiter beyond loopback, for testing.",
        "cryptography",
        package=_APPMASTER,
    ),
    _command("journal", "Check an arbiter's journal against itself and the workers' files.", package=_APPMASTER),
    _command("profiles", "Rates by kind of job: list, show, check, export, import, drop.", package=_APPMASTER),
    _calls_arbiter("submit", "Submit an app: a hyperparameter search, or a single job."),
    _calls_arbiter("apps", "List apps with their fairness, slots and trials."),
    _calls_arbiter("best", "Show the best trial of a search: parameters, metric, checkpoint."),
    _calls_arbiter("tensorboard", "Show an app's logs in TensorBoard, a run for each trial.", "tensorboard"),
    _calls_arbiter("explain", "Say why a job waits, and what would free it."),
    _calls_arbiter("cancel", "Cancel an app."),
    _calls_arbiter("users", "People who share an arbiter: add, set, list, remove, token."),
    _calls_arbiter("clean", "Remove the folders of apps that ended long ago."),
    _calls_arbiter("resume", "Resume an app that failed because its app master ended."),
    _calls_arbiter("logs", "Show what a job has written."),
    _calls_arbiter("nodes", "Machines of the cluster: list, drain, undrain, remove, token."),
    _calls_arbiter("launcher", "Run a machine that joins an arbiter."),
    _calls_arbiter("slurm", "Serve on batch jobs of Slurm: up, status, down.", "cryptography", package=_ENGINES),
    _calls_arbiter("ray", "Serve on a Ray cluster: up, status, down.", "ray", "cryptography", package=_ENGINES),
    _calls_arbiter("kubernetes", "Serve on Kubernetes: the manifest of a cluster, its keeper.", package=_ENGINES),
    _calls_arbiter("engine", "Check an engine that gives machines, such as Slurm.", package=_ENGINES),
    _command("plugins", "List plugins and profiles, or resolve a profile."),
)


OF_EXTRAS: Final[Mapping[str, str]] = {"market": "eunomia_market"}
"""Commands of packages that an extra installs: the package by command, for the error if it is not installed."""


def built_in(name: str) -> Command | None:
    """Return the built-in command with a name, or None; installed packages are not searched."""
    return next((command for command in BUILT_IN if command.name == name), None)


def all_commands(*, installed: bool = True) -> Mapping[str, Command]:
    """Return commands by name: built-in ones, then those of installed packages, which cannot replace a built-in one."""
    known = {command.name: command for command in BUILT_IN}
    for entry in importlib.metadata.entry_points(group=GROUP) if installed else ():
        dist = entry.dist.name if entry.dist else "an installed package"
        known.setdefault(entry.name, Command(name=entry.name, help=f"From {dist}.", target=entry.value))
    return known
