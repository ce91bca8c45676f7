"""What an arbiter's process is told when it starts, and where its files stand."""

import os
from pathlib import Path

from eunomia.journal_files import DEFAULT_RETENTION, Retention
from eunomia.shapes import value
from eunomia.units import Seconds
from eunomia_appmaster.service.certificates import Certificates

DEFAULT_ADDRESS = "127.0.0.1:7720"
KEPT_APPS = 1000
"""Apps that are over and kept in memory, unless it is said otherwise."""


@value
class Settings:
    """One arbiter's settings; durations in seconds."""

    state_dir: Path
    address: str = DEFAULT_ADDRESS
    """host:port; port 0 takes a free one, which the address file tells."""
    certificates: Certificates | None = None
    """For TLS; an address beyond loopback needs them."""
    metrics: str | None = None
    """host:port of metrics and health over HTTP; None: neither is served."""
    policy: str = "default"
    overrides: tuple[str, ...] = ()
    """``KEY=VALUE``, as ``--set`` takes them."""
    seed: int = 0
    heartbeat: Seconds = Seconds(1.0)
    """How long a heartbeat without news takes to be answered."""
    node_heartbeat: Seconds = Seconds(5.0)
    """The same for launchers."""
    node_silence: Seconds = Seconds(30.0)
    """A machine that says nothing for so long is lost."""
    step_limit: Seconds = Seconds(30.0)
    """A step that takes longer ends the process; its supervisor starts another, which folds the journal and counts a
    fault of the plugin that had not returned."""
    checkpoint_steps: int = 200
    """Steps between two checkpoints of the state."""
    retention: Retention = DEFAULT_RETENTION
    """What becomes of the journal's old steps."""
    keep_apps: int = KEPT_APPS
    """Apps that are over and kept in memory; those that ended before are looked up in the journal."""
    durable: bool = True
    """See ``Journal.open``."""

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.state_dir / "journal.sqlite"

    @property
    def apps(self) -> Path:
        """The folder of all apps' folders."""
        return self.state_dir / "apps"


def default_state_dir() -> Path:
    """``$EUNOMIA_STATE_DIR``, else ``$XDG_STATE_HOME/eunomia``."""
    given = os.environ.get("EUNOMIA_STATE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "eunomia"


def run_dir(state_dir: Path) -> Path:
    """Where address and tokens of the running arbiter stand.

    ``$XDG_RUNTIME_DIR/eunomia`` for the default state folder, so that it is gone after a restart of the machine; beside
    the journal for any other, so that several arbiters keep apart.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and state_dir.resolve() == default_state_dir().resolve() and "EUNOMIA_STATE_DIR" not in os.environ:
        return Path(runtime) / "eunomia"
    return state_dir / "run"
