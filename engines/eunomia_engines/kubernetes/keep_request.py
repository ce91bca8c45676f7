"""The request of ``eunomia kubernetes keep``: a file that the manifest contains, copied to the state folder."""

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eunomia.errors import InputError
from eunomia_appmaster.node.private_files import write_private
from eunomia_engines.kubernetes.api import KEEPER_LABEL
from eunomia_engines.kubernetes.request import MOST_NODES
from eunomia_engines.requests import REQUEST

FOLDER: Final = Path("engine") / "kubernetes"
"""The engine's files, below the arbiter's state folder."""


class KeepRequest(BaseModel):
    """The requested nodes, and the Job that holds a node.

    Attributes:
        least: minimum number of nodes.
        most: maximum number of nodes, while jobs wait for slots.
        idle_seconds: seconds without leases after which a node above ``least`` is given back.
        wait_seconds: seconds for which jobs must have waited for slots before another node is requested.
        end_seconds: seconds between the SIGTERM and the SIGKILL of a node's pod.
        job: template of a node's Job; the name in its metadata is the prefix of the Job's name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    least: Annotated[int, Field(ge=1, le=MOST_NODES)]
    most: Annotated[int, Field(ge=1, le=MOST_NODES)]
    idle_seconds: Annotated[float, Field(ge=0)] = 600.0
    wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    end_seconds: Annotated[float, Field(ge=0)] = 60.0
    job: dict[str, Any]

    @property
    def namespace(self) -> str:
        """The namespace of all Jobs."""
        return str(self.job["metadata"]["namespace"])

    @property
    def keeper(self) -> str:
        """The cluster's name, the value of the label by which its Jobs are found."""
        return str(self.job["metadata"]["labels"][KEEPER_LABEL])

    def text(self) -> str:
        """Return the request as JSON, for the manifest."""
        return self.model_dump_json(indent=1)

    def save(self, state: Path) -> None:
        """Write the request below a state folder."""
        (state / FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(state / FOLDER / REQUEST, self.text().encode(), sync=True)

    @classmethod
    def load(cls, state: Path) -> "KeepRequest":
        """Read the request of a state folder.

        Raises:
            InputError: there is no request, or it is damaged.
        """
        if not (state / FOLDER / REQUEST).exists():
            raise InputError("a state folder must be one of `eunomia kubernetes keep`", value=str(state))
        return cls.read(state / FOLDER / REQUEST)

    @classmethod
    def read(cls, path: Path) -> "KeepRequest":
        """Read a request from a file.

        Raises:
            InputError: the file cannot be read or is malformed, or its Job lacks a name, namespace or label.
        """
        rule = "the request for nodes must be one that `eunomia kubernetes manifest --nodes A..B` has made"
        try:
            made = cls(**json.loads(path.read_text(encoding="utf-8")))
            if made.most < made.least or not (made.namespace and made.keeper and made.job["metadata"]["name"]):
                raise ValueError(f"from {made.least} to {made.most} nodes")
        except (OSError, ValueError, TypeError, KeyError, ValidationError) as error:
            text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise InputError(rule, value=text, place=str(path)) from None
        return made
