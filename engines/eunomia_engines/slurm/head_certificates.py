"""The certificates of heads in batch jobs: all are signed by the same CA, and each names its head's machine.

The key of the CA stays in the state folder, so that nodes and commands that trust the CA trust the next head as well.
"""

import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from eunomia_appmaster.launcher.interfaces import own_addresses
from eunomia_appmaster.node.private_files import write_private
from eunomia_appmaster.service.certificates import Certificates, certificates_of, key_of, own_names, signed

CA_KEY: Final = "ca.key"
CA_DAYS: Final = 3650
DAYS: Final = 90
"""Validity of a head's certificate: longer than any batch job runs."""


def certificates_here(folder: Path) -> Certificates:
    """Sign a certificate for this machine with the CA of a folder; the first call creates the CA.

    Raises:
        InputError: the CA or its key cannot be read.
        OSError: the folder cannot be written.
    """
    files = Certificates.inside(folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (folder / CA_KEY).exists():
        own = ec.generate_private_key(ec.SECP256R1())
        made = signed(f"Eunomia {os.urandom(4).hex()}", own.public_key(), None, own, (), CA_DAYS)
        write_private(files.ca, made.public_bytes(Encoding.PEM), sync=True)
        write_private(folder / CA_KEY, _pem(own), sync=True)
    ca, ca_key, key = certificates_of(files.ca)[0], key_of(folder / CA_KEY), ec.generate_private_key(ec.SECP256R1())
    cert = signed("Eunomia arbiter", key.public_key(), ca, ca_key, (*own_names(), *own_addresses()), DAYS)
    write_private(files.cert, cert.public_bytes(Encoding.PEM), sync=True)
    write_private(files.key, _pem(key), sync=True)
    return files


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
