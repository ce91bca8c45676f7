"""The settings of an arbiter's process, and the paths of its files."""

import os
from pathlib import Path

from eunomia.journal.files import DEFAULT_RETENTION, Retention
from eunomia.model.shapes import value
from eunomia.units import Seconds
from eunomia_appmaster.node.connections import PATIENCE_SECONDS
from eunomia_appmaster.node.job_limits import DEFAULTS, JobLimits
from eunomia_appmaster.node.mark_file import MARK
from eunomia_appmaster.service.certificates import Certificates

DEFAULT_ADDRESS = "127.0.0.1:7720"
KEPT_APPS = 1000
"""Default maximum number of ended apps in memory."""


@value
class Settings:
    """The settings of one arbiter; durations are in seconds."""

    state_dir: Path
    address: str = DEFAULT_ADDRESS
    """host:port; port 0 means any free one, which is written to the address file."""
    certificates: Certificates | None = None
    """Certificates for TLS; required for an address beyond loopback."""
    metrics: str | None = None
    """host:port of metrics and health over HTTP; None: neither is served."""
    policy: str = "default"
    overrides: tuple[str, ...] = ()
    """Changed settings, ``KEY=VALUE`` as for ``--set``."""
    seed: int = 0
    heartbeat: Seconds = Seconds(1.0)
    """Seconds after which a heartbeat without news is answered."""
    node_heartbeat: Seconds = Seconds(5.0)
    """Seconds after which a launcher's heartbeat without news is answered."""
    node_silence: Seconds = Seconds(90.0)
    """Seconds of silence after which a machine is lost. Its launcher may be stopped for 60 s before it is replaced."""
    node_lease: Seconds = Seconds(90.0)
    """Length in seconds of an ordinary lease of a node, if there are several nodes; see ``node_leases``."""
    stop_lease: Seconds = Seconds(900.0)
    """Length in seconds of the leases granted before an orderly end of this process, so that a restart ends no work."""
    app_master_silence: Seconds = Seconds(30.0)
    """Seconds without a call of an app master, while its launcher responds, after which it is ended as hung; at least
    ten heartbeats."""
    step_limit: Seconds = Seconds(30.0)
    """Longest time of a step in seconds; a longer step ends the process. Its supervisor starts another, which replays
    the journal and attributes a fault to the plugin that had not returned."""
    checkpoint_steps: int = 200
    """Steps between two checkpoints of the state."""
    retention: Retention = DEFAULT_RETENTION
    """The rule for how many of the journal's old steps are kept."""
    keep_apps: int = KEPT_APPS
    """Maximum number of ended apps in memory; older ones are looked up in the journal."""
    connections: int | None = None
    """Maximum number of connections to the arbiter; None for as many as the limit of open files allows."""
    connection_patience: Seconds = Seconds(PATIENCE_SECONDS)
    """Seconds after which a connection without a valid token is closed."""
    durable: bool = True
    """Whether each step is synced to the disk; see ``Journal.open``."""
    clean_after: Seconds | None = None
    """Seconds after an app's end at which its folder is removed; None: never."""
    clean_keep_best: bool = False
    """Whether the app's own files and its best checkpoint are kept when its folder is removed."""
    job_limits: JobLimits = DEFAULTS
    """Limits on jobs and apps on all nodes."""
    reserve: int = 0
    """Bytes of disk space reserved for the journal; 0: none."""
    accept_loss: bool = False
    """Whether to continue without steps that the journal has lost, instead of asking the operator."""

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.state_dir / "journal.sqlite"

    @property
    def mark(self) -> Path:
        """The file with the mark of how far the journal was written."""
        return self.state_dir / MARK

    @property
    def apps(self) -> Path:
        """The folder of all apps' folders."""
        return self.state_dir / "apps"


def default_state_dir() -> Path:
    """Return the default state folder: ``$EUNOMIA_STATE_DIR``, else ``$XDG_STATE_HOME/eunomia``."""
    given = os.environ.get("EUNOMIA_STATE_DIR")
    if given:
        return Path(given)
    home = os.environ.get("XDG_STATE_HOME")
    return (Path(home) if home else Path.home() / ".local" / "state") / "eunomia"


def run_dir(state_dir: Path) -> Path:
    """Return the folder of the running arbiter's address and tokens.

    For the default state folder it is ``$XDG_RUNTIME_DIR/eunomia``, which a reboot clears; for any other, the journal's
    folder, so that each arbiter has its own.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and state_dir.resolve() == default_state_dir().resolve() and "EUNOMIA_STATE_DIR" not in os.environ:
        return Path(runtime) / "eunomia"
    return state_dir / "run"
