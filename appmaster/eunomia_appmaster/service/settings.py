"""The settings of an arbiter's process, and the places of its files."""

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
"""Ended apps that are kept in memory by default."""


@value
class Settings:
    """One arbiter's settings; durations in seconds."""

    state_dir: Path
    address: str = DEFAULT_ADDRESS
    """host:port; port 0 takes a free one, which the address file has."""
    certificates: Certificates | None = None
    """For TLS; an address beyond loopback needs them."""
    metrics: str | None = None
    """host:port of metrics and health over HTTP; None: neither is served."""
    policy: str = "default"
    overrides: tuple[str, ...] = ()
    """``KEY=VALUE``, as ``--set`` takes them."""
    seed: int = 0
    heartbeat: Seconds = Seconds(1.0)
    """Seconds after which a heartbeat without news is answered."""
    node_heartbeat: Seconds = Seconds(5.0)
    """Seconds after which a launcher's heartbeat without news is answered."""
    node_silence: Seconds = Seconds(90.0)
    """Seconds of silence after which a machine is lost: its launcher may be stopped for 60 s, and is replaced then."""
    node_lease: Seconds = Seconds(90.0)
    """Seconds for which an answered node of several holds its slots; see ``node_leases``."""
    stop_lease: Seconds = Seconds(900.0)
    """The same, as given before an orderly end of this process, so that a restart ends no work."""
    app_master_silence: Seconds = Seconds(30.0)
    """Seconds without a call of an app master, while its launcher answers, after which it is ended as one that hangs;
    at least ten heartbeats."""
    step_limit: Seconds = Seconds(30.0)
    """A step that takes longer ends the process; its supervisor starts another, which replays the journal and
    attributes a fault to the plugin that had not returned."""
    checkpoint_steps: int = 200
    """Steps between two checkpoints of the state."""
    retention: Retention = DEFAULT_RETENTION
    """Retention of the journal's old steps."""
    keep_apps: int = KEPT_APPS
    """Ended apps that are kept in memory; those that ended earlier are looked up in the journal."""
    connections: int | None = None
    """Most connections to the arbiter; None: as the limit of open files has it."""
    connection_patience: Seconds = Seconds(PATIENCE_SECONDS)
    """Seconds after which a connection without a valid token is closed."""
    durable: bool = True
    """See ``Journal.open``."""
    clean_after: Seconds | None = None
    """Seconds after its end at which an app's folder is removed; None: never."""
    clean_keep_best: bool = False
    """Whether the files of such an app and its best checkpoint stay."""
    job_limits: JobLimits = DEFAULTS
    """Limits on jobs and apps, on all nodes alike."""
    reserve: int = 0
    """Bytes of the disk that are kept for the journal; 0: none."""
    accept_loss: bool = False
    """Go on without steps that the journal has lost, instead of asking."""

    @property
    def journal(self) -> Path:
        """The journal's file."""
        return self.state_dir / "journal.sqlite"

    @property
    def mark(self) -> Path:
        """The file that says how far the journal was written."""
        return self.state_dir / MARK

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
    """Return the folder of the running arbiter's address and tokens.

    ``$XDG_RUNTIME_DIR/eunomia`` for the default state folder, so that a restart of the machine clears it; the folder of
    the journal for any other, so that each arbiter has its own.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and state_dir.resolve() == default_state_dir().resolve() and "EUNOMIA_STATE_DIR" not in os.environ:
        return Path(runtime) / "eunomia"
    return state_dir / "run"
