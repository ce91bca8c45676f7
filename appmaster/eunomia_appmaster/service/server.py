"""The arbiter's gRPC server: three services behind one guard, on a loopback address."""

import grpc

from eunomia.errors import InputError
from eunomia_appmaster.protocol import arbiter_pb2_grpc, launcher_pb2_grpc
from eunomia_appmaster.service.clients import ClientProtocol
from eunomia_appmaster.service.masters import ApplicationMasterProtocol
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.tokens import Guard
from eunomia_appmaster.service.tracker import ResourceTracker

MAX_REQUEST_BYTES = 4 * 1024 * 1024
LOOPBACK = ("127.0.0.1", "localhost", "::1", "[::1]")


def check_address(address: str, *, place: str = "--address") -> tuple[str, int]:
    """Host and port of a loopback address.

    Raises:
        InputError: no ``host:port``, or an address that others can reach.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InputError('an address must be HOST:PORT, such as "127.0.0.1:7720"', value=f'"{address}"', place=place)
    if host not in LOOPBACK:
        rule = "an address must be a loopback one, for any other needs TLS, which is not here yet"
        raise InputError(rule, value=f'"{address}"', place=place)
    return host, int(port)


async def start_server(service: Service, address: str) -> tuple[grpc.aio.Server, str]:
    """Serve at an address.

    Returns:
        The server, and the address with the port that it got.

    Raises:
        InputError: the address is in use.
    """
    host, port = check_address(address)
    server = grpc.aio.server(
        interceptors=[Guard(service.tokens)],
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MAX_REQUEST_BYTES),
            ("grpc.max_concurrent_streams", 1000),
        ],
    )
    launcher_pb2_grpc.add_ResourceTrackerServicer_to_server(ResourceTracker(service), server)
    arbiter_pb2_grpc.add_ApplicationMasterProtocolServicer_to_server(ApplicationMasterProtocol(service), server)
    arbiter_pb2_grpc.add_ClientProtocolServicer_to_server(ClientProtocol(service), server)
    try:
        bound = server.add_insecure_port(f"{host}:{port}")
    except RuntimeError as error:
        raise InputError("an address must be free to be served", value=f'"{address}"', place="--address") from error
    await server.start()
    return server, f"{host}:{bound}"
