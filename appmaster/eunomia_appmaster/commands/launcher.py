"""``eunomia launcher``: runs this machine's launcher, which joins the cluster of an arbiter."""

import math
import os
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from pydantic import BaseModel, ConfigDict

from eunomia.errors import InputError
from eunomia.units import parse_duration
from eunomia_appmaster.commands.model_flags import with_flags
from eunomia_appmaster.commands.serve_flags import foreign_gpus_option
from eunomia_appmaster.launcher.listening import ports_of
from eunomia_appmaster.launcher.node import default_name
from eunomia_appmaster.launcher.node_lease import WHEN_ALONE
from eunomia_appmaster.node.control_groups import KINDS
from eunomia_appmaster.node.kept_apart import APPS
from eunomia_appmaster.node.slot_types import parse_slot_types
from eunomia_appmaster.protocol.connecting import check_target
from eunomia_appmaster.protocol.node_names import check_name
from eunomia_appmaster.service.settings import default_state_dir

NODES: Final = "nodes"
"""Name of the folder with each node's own folder, below the user's default state folder."""


def rack_option(name: str) -> str:
    """Check the value of ``--rack`` and return it.

    Raises:
        InputError: it is not a valid name.
    """
    check_name(name, "a rack", "--rack")
    return name


def seconds_option(text: str, name: str) -> float:
    """Return the value of an option in seconds: a duration with a unit, or a plain number of seconds.

    Raises:
        InputError: it is neither, or negative.
    """
    return float(parse_duration(f"{text}s" if text.replace(".", "", 1).isdecimal() else text, name=name, zero=True))


class LauncherFlags(BaseModel):
    """Flags of ``eunomia launcher``; its process has additional options (``python -m eunomia_appmaster.launcher``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    arbiter: Annotated[str, typer.Option("--arbiter", metavar="HOST:PORT", help="The arbiter's address.")]
    apps: Annotated[
        Path | None,
        typer.Option("--apps", metavar="AT", help="Where the apps' folders of the arbiter's state folder are here."),
    ] = None
    state: Annotated[
        Path | None,
        typer.Option("--state", metavar="DIR", help="The arbiter's state folder, where it is here as a whole."),
    ] = None
    join: Annotated[
        str | None,
        typer.Option("--join", metavar="FILE|-", help="Join token, from a file or standard input; needed once."),
    ] = None
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="The arbiter's launcher.token, on its machine.")
    ] = None
    announce: Annotated[
        str, typer.Option("--announce", metavar="HOST", help="Of this machine for others; default: by the route.")
    ] = ""
    port_range: Annotated[
        str, typer.Option("--port-range", metavar="A-B", help="Ports for app masters; default: any free one.")
    ] = ""
    node: Annotated[
        str | None, typer.Option("--node", metavar="NAME", help="Of this node; default: the host's name.")
    ] = None
    node_dir: Annotated[
        Path | None, typer.Option("--node-dir", metavar="DIR", help="Its own files, on a local disk.")
    ] = None
    rack: Annotated[
        str, typer.Option("--rack", metavar="NAME", help="Of this machine, given at its join; default: r1.")
    ] = ""
    slots: Annotated[int | None, typer.Option("--slots", metavar="N", min=1, help="CPU slots where no GPU is.")] = None
    slot_types: Annotated[
        str, typer.Option("--slot-types", metavar="TYPES", help="Paced CPU slots: '2x fast:1.0, 2x slow:0.5'.")
    ] = ""
    cpu_only: Annotated[bool, typer.Option("--cpu-only", help="CPU slots even where there are GPUs.")] = False
    control_groups: Annotated[
        str,
        typer.Option("--control-groups", metavar="KIND", help="Groups that enforce slots: auto, v2, v1, kill or none."),
    ] = "auto"
    foreign_gpus: Annotated[
        str, typer.Option("--foreign-gpus", metavar="WHAT", help="About a worker on another slot's GPU: warn or end.")
    ] = "warn"
    when_alone: Annotated[
        str,
        typer.Option("--when-alone", metavar="WHAT", help="Workers, when the node's lease ends: stop or go-on."),
    ] = WHEN_ALONE[0]
    stop_seconds: Annotated[
        str, typer.Option("--stop-seconds", metavar="TIME", help="Grace of what runs here when it ends.")
    ] = "10s"

    @property
    def name(self) -> str:
        """The node's name: the option's, else this machine's."""
        return default_name() if self.node is None else self.node

    @property
    def apps_folder(self) -> Path:
        """The folder of all apps' folders, at its path on this machine.

        Raises:
            InputError: it is not given, or does not exist.
        """
        if self.apps and self.state and self.apps.resolve() != (self.state / APPS).resolve():
            rule = "the apps' folders must be given by --apps, or by --state that has them as a whole"
            raise InputError(rule, value=f"{self.apps} and {self.state}", place="--apps, --state")
        if (given := self.apps or self.state) is None:
            raise InputError(
                "a launcher must know where the apps' folders are: --apps AT", value="neither", place="--apps"
            )
        found = given if self.apps else given / APPS
        if not found.is_dir():
            rule = "the apps' folders of the arbiter's state folder must be on this machine (--apps AT)"
            raise InputError(rule, value=str(found), place="--apps" if self.apps else "--state")
        return found

    @property
    def command(self) -> list[str]:
        """The command line of the launcher's process.

        Raises:
            InputError: an option has an invalid value; nothing has started.
        """
        name = self.name
        check_target(self.arbiter, "--arbiter")
        check_name(name, "a node's name", "--node")
        self._check_slots()
        made = [sys.executable, "-m", "eunomia_appmaster.launcher", "--arbiter", self.arbiter, "--node", name]
        folder = self.node_dir or default_state_dir() / NODES / name
        made += ["--state", str(self.state or folder), "--apps", str(self.apps_folder)]
        made += ["--token-file", str(self.token_file)] if self.token_file is not None else []
        made += ["--join", self.join] if self.join is not None else []
        made += ["--announce", self.announce] if self.announce else []
        made += ["--port-range", self.port_range] if self.port_range else []
        made += ["--node-dir", str(folder)]
        made += ["--rack", rack_option(self.rack)] if self.rack else []
        made += ["--slots", str(self.slots)] if self.slots is not None else []
        made += ["--slot-types", self.slot_types] if self.slot_types else []
        made += ["--cpu-only"] if self.cpu_only else []
        made += ["--control-groups", self.control_groups]
        made += ["--foreign-gpus", foreign_gpus_option(self.foreign_gpus)]
        if self.when_alone not in WHEN_ALONE:
            raise InputError(f"--when-alone must be {' or '.join(WHEN_ALONE)}", value=self.when_alone)
        made += ["--when-alone", self.when_alone]
        return [*made, "--stop-seconds", str(seconds_option(self.stop_seconds, "--stop-seconds"))]

    def _check_slots(self) -> None:
        if self.port_range:
            ports_of(self.port_range)
        if self.slot_types:
            parse_slot_types(self.slot_types, math.inf)  # the launcher itself compares them with its cores
        if self.control_groups not in KINDS:
            rule = f"control groups must be one of {', '.join(KINDS)}"
            raise InputError(rule, value=self.control_groups, place="--control-groups")


@with_flags(LauncherFlags)
def launcher(flags: LauncherFlags) -> int:
    """Run this machine's launcher, which joins the arbiter's cluster. Ctrl-C ends what runs here, then the launcher."""
    command = flags.command
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the launcher itself logs refusals
    os.environ.setdefault("EUNOMIA_LOG", "info")  # whether it has joined, and whether the arbiter answers
    os.execv(sys.executable, command)  # signals reach the launcher itself
