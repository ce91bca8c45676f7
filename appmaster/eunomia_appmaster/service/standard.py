"""gRPC's standard services in addition to the arbiter's own: health, without a token, and reflection for the operator.

Both need packages of the extra ``live``; without them, only the arbiter's own services are served.
"""

from typing import Any

import grpc

from eunomia.extras import is_installed
from eunomia_appmaster.service.service import Service
from eunomia_appmaster.service.tokens import HEALTH, REFLECTION, SERVICES


def add_standard_services(service: Service, server: grpc.aio.Server) -> None:
    """Add health and reflection to a server that was not started yet."""
    if is_installed("grpc_health"):
        _add_health(service, server)
    if is_installed("grpc_reflection"):
        from grpc_reflection.v1alpha import reflection

        names = [name for name in SERVICES if name != REFLECTION]
        reflection.enable_server_reflection([*names, HEALTH, REFLECTION], server)


def _add_health(service: Service, server: grpc.aio.Server) -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc]
        """``Check`` of grpc.health.v1; ``Watch`` is not offered, since it would keep calls open without a token."""

        async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
            """Answer SERVING once the arbiter has machines and a journal; NOT_FOUND for an unknown service."""
            if request.service and request.service not in SERVICES:
                await context.abort(grpc.StatusCode.NOT_FOUND, f'no service "{request.service[:100]}" is here')
            states = health_pb2.HealthCheckResponse
            return states(status=states.SERVING if service.away is None else states.NOT_SERVING)

    health_pb2_grpc.add_HealthServicer_to_server(Health(), server)
