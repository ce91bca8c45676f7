"""The names of an engine in its head: its files, its commands, and the word for a node."""

from pathlib import Path

from eunomia.model.shapes import value


@value
class HeadNames:
    """The names of an engine in a head.

    Attributes:
        engine: its name.
        folder: of its files, below the state folder.
        unit: what a node is at the engine, such as a job.
    """

    engine: str
    folder: Path
    unit: str

    @property
    def up(self) -> str:
        """The command that serves a state folder."""
        return f"eunomia {self.engine} up"

    @property
    def down(self) -> str:
        """The command after which another one may serve it."""
        return f"eunomia {self.engine} down"
