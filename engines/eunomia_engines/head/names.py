"""The names that a head uses for its engine: files, commands, and the engine's term for a node."""

from pathlib import Path

from eunomia.model.shapes import value


@value
class HeadNames:
    """The names of an engine in a head.

    Attributes:
        engine: the engine's name, such as ``slurm``.
        folder: folder of its files, below the state folder.
        unit: the engine's term for a node, such as ``job``.
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
        """The command after which another command may serve the state folder."""
        return f"eunomia {self.engine} down"
