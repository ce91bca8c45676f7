"""The arbiter's gRPC server: three services behind one interceptor (``Guard``), on loopback or with TLS."""

from pathlib import Path

import grpc
import structlog

from eunomia.errors import InputError
from eunomia_appmaster.node.connections import Connections, most_connections
from eunomia_appmaster.node.kept_files import sealed_token
from eunomia_appmaster.protocol import arbiter_pb2_grpc, launcher_pb2_grpc
from eunomia_appmaster.protocol.connecting import ADDRESS_FILE, LOOPBACK, Address, check_target
from eunomia_appmaster.service.admission import NodeAdmission
from eunomia_appmaster.service.bounds import MAX_REQUEST_BYTES
from eunomia_appmaster.service.certificates import CA_FILE, Certificates, ServedCertificates
from eunomia_appmaster.service.clients import ClientProtocol
from eunomia_appmaster.service.guard import Guard
from eunomia_appmaster.service.masters import ApplicationMasterProtocol
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.standard import add_standard_services
from eunomia_appmaster.service.tokens import publish_private
from eunomia_appmaster.service.tracker import ResourceTracker

log = structlog.get_logger()

MOST_CALLS = 5000
"""Maximum number of calls of all clients that may wait at the same time."""


def check_address(
    address: str, certificates: Certificates | None = None, *, place: str = "--address"
) -> tuple[str, int]:
    """Check an address to serve, a loopback one or any with TLS, and return its host and port.

    Raises:
        InputError: the address is not ``host:port``, or is beyond loopback without certificates, or the certificates
            are for another host.
    """
    check_target(address, place, least_port=0)
    host, _, port = address.rpartition(":")
    if certificates is not None:
        certificates.check(host)
    elif host not in LOOPBACK:
        options = "--tls-cert and --tls-key, or --make-certificates"
        rule = f"an address must be a loopback one, for any other needs TLS ({options})"
        raise InputError(rule, value=f'"{address}"', place=place)
    return host, int(port)


async def start_server(service: Service, address: str) -> tuple[grpc.aio.Server, str]:
    """Serve at an address, with TLS if the settings have certificates.

    Returns:
        The server, and host and port by which this machine's processes reach it.

    Raises:
        InputError: the address is in use.
    """
    certificates = service.settings.certificates
    host, port = check_address(address, certificates)
    most, patience = service.settings.connections or most_connections(), service.settings.connection_patience
    connections = service.connections = Connections(most, patience_seconds=patience, system=service.system)
    server = grpc.aio.server(
        interceptors=[Guard(service.tokens, connections.vouch, service.join_tokens)],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_concurrent_streams", 1000),
            ("grpc.max_allowed_incoming_connections", most),
        ],
        maximum_concurrent_rpcs=MOST_CALLS,
    )
    launcher_pb2_grpc.add_ResourceTrackerServicer_to_server(ResourceTracker(service), server)
    arbiter_pb2_grpc.add_ApplicationMasterProtocolServicer_to_server(ApplicationMasterProtocol(service), server)
    arbiter_pb2_grpc.add_ClientProtocolServicer_to_server(ClientProtocol(service), server)
    launcher_pb2_grpc.add_NodeAdmissionServicer_to_server(NodeAdmission(service), server)
    add_standard_services(service, server)
    try:
        if certificates is None:
            bound = server.add_insecure_port(f"{host}:{port}")
        else:
            service.certificates = ServedCertificates(certificates, host)
            bound = server.add_secure_port(f"{host}:{port}", service.certificates.credentials())
    except RuntimeError as error:
        raise InputError("an address must be free to be served", value=f'"{address}"', place="--address") from error
    await server.start()
    connections.port = bound
    return server, f"{host if certificates is None else certificates.reached_at(host)}:{bound}"


def publish(service: Service, folder: Path) -> None:
    """Write address, CA and tokens to the files where this machine's processes look for them (mode 0600).

    Args:
        service: the arbiter's service.
        folder: the folder for the files, see ``settings.run_dir``.
    """
    for name, text in _published(service).items():
        publish_private(folder / name, text)


def mend(service: Service, folder: Path) -> None:
    """Rewrite the files of ``publish`` that are missing or damaged."""
    for name, text in _published(service).items():
        path = folder / name
        try:
            if path.read_bytes() == text.encode():
                continue
        except OSError:
            pass  # it is missing
        publish_private(path, text)
        log.warning("run_file.written_again", file=str(path))


def _published(service: Service) -> dict[str, str]:
    """Return the content of the published files by name; the address last, which the CA file precedes."""
    served = service.certificates
    address = Address(target=service.address, ca_file=None if served is None else Path(CA_FILE))
    return ({} if served is None else {CA_FILE: served.ca}) | {
        "token": service.tokens.operator,
        "launcher.token": sealed_token(service.tokens.launcher),
        ADDRESS_FILE: address.text(),
    }
