"""The host names in a certificate."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509


def certificates_in(content: bytes) -> "list[x509.Certificate]":
    """Return the certificates in a file's content.

    Raises:
        ValueError: the content is not PEM.
    """
    from cryptography import x509

    return x509.load_pem_x509_certificates(content)


def names_of(cert: "x509.Certificate") -> list[str]:
    """Return the host names and IP addresses that a certificate is for."""
    from cryptography import x509

    try:
        names = cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    found = names.get_values_for_type(x509.DNSName)
    return found + [str(address) for address in names.get_values_for_type(x509.IPAddress)]
