"""Serves ``GET`` and ``HEAD`` of ``/metrics`` and ``/health`` over HTTP, in addition to the arbiter's gRPC services."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TookTooLong
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

import structlog

from eunomia.errors import InputError
from eunomia_appmaster.service.app_record import SUSPENDED
from eunomia_appmaster.service.gauges import stalls_of
from eunomia_appmaster.service.metrics import Meters
from eunomia_appmaster.service.node_words import DOWN, UP, NodeWords
from eunomia_appmaster.service.server import check_address

if TYPE_CHECKING:
    from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

PLACE: Final = "--metrics"
ANSWER_SECONDS: Final = 10.0
"""Longest time in seconds for which an answer waits for the end of a step."""
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """An HTTP server that answers in threads; it reads the state in the arbiter's event loop, under its lock.

    Args:
        service: the arbiter's service.
        meters: the arbiter's counters.
        address: host:port; loopback, or any if the service has certificates. Port 0: any free one.

    Raises:
        InputError: the address cannot be served.
    """

    def __init__(self, service: "Service", meters: Meters, address: str) -> None:
        certificates = service.settings.certificates
        host, port = check_address(address, certificates, place=PLACE)
        self._service, self._meters = service, meters
        self._loop = asyncio.get_running_loop()
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), port), _handler(self._answer))
        except OSError as error:
            raise InputError("an address must be free to be served", value=f'"{address}"', place=PLACE) from error
        self._server.daemon_threads = True
        self._tls: ssl.SSLContext | None = None
        if certificates is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(certificates.cert, certificates.key)
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.address = f"{host}:{self._server.server_address[1]}"
        service.system.start_thread(self._server.serve_forever, "metrics")
        log.info("metrics.listening", address=self.address)

    def reload(self) -> None:
        """Read the certificate's files again."""
        certificates = self._service.settings.certificates
        if self._tls is not None and certificates is not None:
            self._tls.load_cert_chain(certificates.cert, certificates.key)

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, path: str) -> tuple[HTTPStatus, str, bytes]:
        """Return status, content type and body for a path."""
        if path not in ("/metrics", "/health"):
            return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics and /health\n"
        try:
            work = asyncio.run_coroutine_threadsafe(
                self._metrics() if path == "/metrics" else self._health(), self._loop
            )
            return work.result(ANSWER_SECONDS)
        except (TookTooLong, CancelledError, RuntimeError):
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, b"the arbiter is busy or stopping\n"

    async def _metrics(self) -> tuple[HTTPStatus, str, bytes]:
        async with self._reading():
            return HTTPStatus.OK, _TEXT, self._meters.text()

    async def _health(self) -> tuple[HTTPStatus, str, bytes]:
        """Return 200 if the arbiter works by the configured profile, on some machine, with disk space; else 503."""
        service, ready = self._service, self._service.ready.is_set()
        wrong = [] if ready else ["waiting for machines"]
        wrong += [full] if (full := service.reserve.words()) else []
        stalled: list[dict[str, Any]] = []
        nodes: list[dict[str, Any]] = []
        missing = [{"node": node.name, "slot": slot} for node in service.nodes for slot in service.nodes.missing(node)]
        async with self._reading():
            if service.question:
                wrong.append(service.question)
            if ready and service.view.fallen_back:
                wrong.append("the fallback serves")
            if ready:
                stalled = [{"app": app.name, "jobs": jobs, "app_master": master, "last": app.standing.get("last_stall")}
                           for app, jobs, master in stalls_of(service) if jobs or master]  # fmt: skip
                stalled += [{"machine": node.name, "launchers": node.hangs, "last": node.last_hang}
                            for node in service.nodes if node.hangs]  # fmt: skip
                words = NodeWords(service)
                seen = [(node.name, words.state(node), words.why(node)) for node in service.nodes]
                nodes = [{"node": name, "state": state, "why": why} for name, state, why in seen if state != UP or why]
            if ready and not any(node.registered and not node.lost for node in service.nodes):
                wrong.append("no machine answers")
        healthy = not wrong
        wrong += [f"{one['node']} is down: {one['why']}" for one in nodes if one["state"] == DOWN]  # others may serve
        health: dict[str, Any] = {"schema": "eunomia/health@1", "ready": ready and service.decides}
        health |= {"healthy": healthy, "wrong": wrong}
        health["nodes"] = nodes  # nodes that are not up, or will not be for long
        health["missing_slots"] = missing  # the others serve, so this alone is no 503
        health["suspended"] = [{"app": app.name, "why": app.why} for app in service.apps if app.state == SUSPENDED]
        now = service.system.unix_time()
        health["left_out"] = [
            {"app": app.name, "node": one.node, "why": one.words(now)}
            for app in service.apps
            for one in service.left_out.of(app.name)
        ]  # no 503 for these alone, either
        health["stalled"] = stalled  # no 503: stalled processes are ended and restarted
        status = HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", (json.dumps(health) + "\n").encode()

    def _reading(self) -> "contextlib.AbstractAsyncContextManager[Any]":
        """Return the driver's lock; without a driver, a context manager without effect."""
        return self._service.driver.lock if self._service.ready.is_set() else contextlib.nullcontext()


def _handler(answer: Callable[[str], tuple[HTTPStatus, str, bytes]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 5.0
        server_version = "eunomia"
        sys_version = ""

        def do_GET(self) -> None:
            self.wfile.write(self._head())

        def do_HEAD(self) -> None:
            self._head()

        def _head(self) -> bytes:
            """Send status and headers; returns the body."""
            status, kind, text = answer(self.path.partition("?")[0])
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            return text

        def log_message(self, format: str, *args: object) -> None:
            log.debug("metrics.asked", what=format % args)

    return Handler
