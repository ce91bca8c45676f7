"""``eunomia certificates``: creates a CA and a certificate for testing an arbiter beyond loopback."""

import json
from pathlib import Path
from typing import Annotated

import typer

from eunomia_appmaster.commands.console import AsJson
from eunomia_appmaster.service.certificates import DAYS, make, own_names


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Gets ca.pem, cert.pem and key.pem.")],
    name: Annotated[
        list[str] | None,
        typer.Option("--name", metavar="HOST", help="A host name or IP address it is for; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option("--days", metavar="N", min=1, max=3650, help="How long it holds.")] = DAYS,
    as_json: AsJson = False,
) -> int:
    """Make certificates for testing; the CA's key is discarded."""
    names = list(dict.fromkeys((*own_names(), *(name or ()))))
    made = make(folder, names, days=days)
    if as_json:
        facts = {"schema": "eunomia/certificates@1", "names": names, "days": days}
        typer.echo(json.dumps(facts | {"cert": str(made.cert), "key": str(made.key), "ca": str(made.ca)}))
    else:
        typer.echo(f"made {made.ca}, {made.cert} and {made.key}, for {', '.join(names)}, for {days} days")
        typer.echo(f"eunomia serve --address HOST:PORT --tls-cert {made.cert} --tls-key {made.key} --tls-ca {made.ca}")
    return 0
