"""The certificate of a launcher on the arbiter's machine that serves beyond loopback.

Such a launcher calls the arbiter with the token file on that machine, not with a join. But its service needs a
certificate like any other node's, so that app masters elsewhere can verify it; the arbiter signs one for that token.
"""

from pathlib import Path
from typing import Final

import structlog

from eunomia.errors import InputError, UnreachableError
from eunomia_appmaster.launcher.access import TokenFileAccess
from eunomia_appmaster.launcher.files import read_json, write_json
from eunomia_appmaster.launcher.joining import OwnJoin
from eunomia_appmaster.node.system import MACHINE, System
from eunomia_appmaster.protocol.connecting import Address

log = structlog.get_logger()

CERTIFIED: Final = "certified.json"


class OwnMachine(OwnJoin):
    """The join of a node on the arbiter's machine: it has a certificate, but no credential.

    Args:
        folder: the node's own folder.
        node: the node's name.
        arbiter: host:port.
        access: access to the arbiter.
        system: connections of the machine.

    Raises:
        InputError: the arbiter refuses to issue a certificate.
        UnreachableError: the arbiter does not answer, and there is no earlier certificate.
    """

    def __init__(
        self, folder: Path, node: str, arbiter: str, access: TokenFileAccess, *, system: System = MACHINE
    ) -> None:
        super().__init__(folder, node, arbiter, system=system)
        self._access = access
        record = read_json(folder / CERTIFIED) or {}
        self.number = int(record.get("join", 0)) if record.get("node") == node else 0
        try:
            self.renew()
        except UnreachableError:
            if not self.number or self._damage():
                raise
            log.info("arbiter.away", while_="a certificate was asked for; the one of before serves")

    @property
    def address(self) -> Address:
        """The arbiter's address."""
        return self._access.address

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the arbiter's token for launchers as metadata.

        Raises:
            InputError: its file is missing or damaged.
        """
        if not (found := self._access.metadata()):
            raise InputError("the arbiter's token for launchers must be readable", value="none", place="--token-file")
        return found

    def renew(self) -> None:
        """Obtain a certificate for the node, whose join is created if there is none.

        Raises:
            InputError: the arbiter refuses it.
            UnreachableError: the arbiter does not answer.
        """
        answer = self._ask("JoinNode", self.metadata()[0][1])
        self.number = answer.join
        self._take(answer)
        write_json(self.folder / CERTIFIED, {"node": self.node, "join": answer.join}, sync=True)
