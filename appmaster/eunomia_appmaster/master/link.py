"""The app master's connection to the arbiter: registration, and heartbeats that carry the reports of the outbox."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import grpc
import structlog

from eunomia.errors import EunomiaError, UnreachableError
from eunomia_appmaster.master.outbox import Outbox, Sending
from eunomia_appmaster.master.wire import plugins_message, request_of
from eunomia_appmaster.node.kept_files import DamagedTokenError, read_token
from eunomia_appmaster.node.system import MACHINE, Flag, System
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol.connecting import Address

log = structlog.get_logger()

LONGEST_PAUSE_SECONDS = 2.0
"""Longest pause in seconds between two attempts to reach the arbiter."""
LONGEST_FAULT_PAUSE_SECONDS = 30.0
"""Longest pause in seconds between two attempts after the arbiter refused the token, or had an internal error."""
CALL_SECONDS = 60.0
"""Seconds after which a heartbeat is cancelled and sent again."""
LEAST_SECONDS = 0.01
"""Least seconds between two heartbeats, so that several reports are sent together."""
Metadata = tuple[tuple[str, str], ...]
PUSHBACK = "grpc-retry-pushback-ms"
"""Trailing metadata of a rate-limited call: milliseconds after which to call again."""
_AGAIN = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


class OverError(EunomiaError):
    """The app has ended or the arbiter does not know it, so that its app master must end."""


class Resync(Exception):  # noqa: N818 - control flow, not an error
    """The arbiter has restarted, so that the app master must register again."""


class ArbiterLink:
    """One app's calls to the arbiter; used by one thread.

    Args:
        address: host:port of the arbiter.
        token_file: holds the app's own token.
        app: name of the app.
        attempt: number of the app master's attempt, from 1.
        outbox: reports to send.
        stopped: an event that ends all waiting when it is set.
        part: number of the start within the attempt, from 1.
        system: threads and connections of the machine.
    """

    def __init__(
        self,
        address: str,
        token_file: Path,
        app: str,
        attempt: int,
        outbox: Outbox,
        stopped: Flag,
        *,
        part: int = 1,
        system: System = MACHINE,
    ) -> None:
        self.unix_time = system.unix_time
        """Returns Unix seconds by the arbiter's clock; replaced if this machine's clock differs."""
        self.live = False
        """Whether the app's jobs change their size live."""
        self._part = part
        self._system = system
        self._address = address
        self._token_file = token_file
        self._token = ""
        self._app = app
        self._attempt = attempt
        self._outbox = outbox
        self._stopped = stopped
        self._channel: grpc.Channel | None = None
        self._response_id = 0
        self._heartbeat_seconds = 1.0
        self._mark = ""
        self._lease_seconds = 0.0
        self._sent = self._answered = 0.0
        """Uptimes in seconds at which the last call, and the last answered call, were sent."""

    @property
    def is_cut_off(self) -> bool:
        """Whether the arbiter has not answered for the length of a lease, so that other apps may have the slots."""
        return 0.0 < self._lease_seconds < self._system.uptime() - self._answered

    def register(self, plugins: Sequence[tuple[str, str]]) -> pb.RegisterApplicationMasterResponse:
        """Register this app master; waits while the arbiter is away.

        Raises:
            OverError: the app has ended or is unknown.
            EunomiaError: the arbiter found the registration malformed.
            UnreachableError: ``stopped`` was set meanwhile.
        """
        request = pb.RegisterApplicationMasterRequest(
            host="127.0.0.1",
            app=self._app,
            attempt=self._attempt,
            part=self._part,
            agent_plugins=plugins_message(plugins),
            mark=self._mark,
            live=self.live,
        )
        answer: pb.RegisterApplicationMasterResponse = self._insist(
            lambda stub, metadata: stub.RegisterApplicationMaster(request, metadata=metadata, timeout=CALL_SECONDS)
        )
        self._answered, self._lease_seconds = self._sent, answer.lease_seconds
        self._response_id, self._mark = 0, answer.mark
        self._heartbeat_seconds = answer.heartbeat_seconds or 1.0
        return answer

    def exchange(self) -> pb.AllocateResponse | None:
        """Send the reports of the outbox and return the answer; None: a new report came first, or the arbiter is away.

        The call waits for the arbiter's answer, or for a new report: the next heartbeat then supersedes this one, and
        the answer to the next one covers both.

        Raises:
            Resync: the arbiter was restarted.
            OverError: the app has ended, or a later attempt runs.
        """
        sending, sent_at = self._outbox.take(), self._system.uptime()
        request = request_of(self._app, self._attempt, self._response_id, sending.reports(), now=self.unix_time())
        done, wake = self._system.flag(), self._system.flag()
        self._outbox.listen(wake)

        def notice(_: object) -> None:
            done.set()
            wake.set()

        try:
            call = self._stub().Allocate.future(request, metadata=self._metadata(), timeout=CALL_SECONDS)
            call.add_done_callback(notice)
            self._await(wake)
            if not done.is_set():
                self._system.sleep(LEAST_SECONDS)  # reports of one moment go into one heartbeat
                call.add_done_callback(lambda superseded: self._check_superseded(superseded, sending, sent_at))
                return None
            answer = self._heard(call.result())
            self._answered = max(self._answered, sent_at)
            return answer
        except grpc.RpcError as error:
            self._outbox.give_back(sending)
            self._after(error)
            return None

    def finish(
        self, *, failed: bool, why: str, standing: pb.Standing | None, jobs_failed: Sequence[pb.JobFailed] = ()
    ) -> None:
        """Report the end of the app until the arbiter acknowledges it.

        Args:
            failed: whether the whole app failed.
            why: the reason of the failure.
            standing: the last state of the search for users.
            jobs_failed: jobs that failed permanently.

        Raises:
            OverError: the arbiter has ended the app already.
            EunomiaError: the arbiter found the report malformed.
            UnreachableError: ``stopped`` was set meanwhile.
        """
        request = pb.FinishApplicationMasterRequest(
            diagnostics=why,
            final_application_status=pb.FAILED if failed else pb.SUCCEEDED,
            app=self._app,
            attempt=self._attempt,
            standing=standing,
            jobs_failed=jobs_failed,
        )
        while True:
            answer: pb.FinishApplicationMasterResponse = self._insist(
                lambda stub, metadata: stub.FinishApplicationMaster(request, metadata=metadata, timeout=CALL_SECONDS)
            )
            if answer.is_unregistered:
                return
            self._stopped.wait(0.1)

    def close(self) -> None:
        """Close the connection."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    # -- calls

    def _await(self, wake: Flag) -> None:
        """Wait for the arbiter's answer, for a new report, or for the end of this process."""
        while not self._stopped.is_set() and not wake.wait(timeout=1.0):
            pass

    def _check_superseded(self, call: "grpc.Future[pb.AllocateResponse]", sending: Sending, sent_at: float) -> None:
        """Queue the reports of a superseded call again if it failed; ignore its answer, which the next one repeats."""
        if call.cancelled() or call.exception() is not None:
            self._outbox.give_back(sending)
        else:
            self._answered = max(self._answered, sent_at)

    def _heard(self, answer: pb.AllocateResponse) -> pb.AllocateResponse:
        if answer.a_m_command == pb.AM_RESYNC:
            raise Resync
        if answer.a_m_command == pb.AM_SHUTDOWN:
            raise OverError(answer.diagnostics or "the app is over, or a later attempt of its master is there")
        self._response_id = answer.response_id
        self._mark = answer.mark or self._mark
        return answer

    def _after(self, error: grpc.RpcError) -> None:
        code = error.code()
        if code in _AGAIN or _is_too_often(error):
            self._stopped.wait(random.uniform(0.05, 0.5))
            return
        if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT):
            log.warning("arbiter.refused", code=code.name, why=error.details())
            self._stopped.wait(0.2)
            raise Resync
        log.error("arbiter.failed", code=code.name, why=error.details())  # internal error, or a different server
        self._stopped.wait(LONGEST_PAUSE_SECONDS)
        raise Resync

    def _insist(self, call: Callable[[rpc.ApplicationMasterProtocolStub, Metadata], Any]) -> Any:
        """Repeat a call until the arbiter answers: an internal error or a refused token does not end an app master."""
        pause = 0.1
        while not self._stopped.is_set():
            self._sent = self._system.uptime()
            try:
                return call(self._stub(), self._metadata())
            except grpc.RpcError as error:
                code, why = error.code(), error.details() or ""
                if code in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND):
                    raise OverError(why) from None
                if code is grpc.StatusCode.INVALID_ARGUMENT:
                    rule = "the arbiter must accept this app master"
                    raise EunomiaError(rule, value=f"{code.name}: {why}") from None
                faulty = code not in _AGAIN and not _is_too_often(error)
                if faulty:
                    log.error("arbiter.failed", code=code.name, why=why)
            self._stopped.wait(pause)
            pause = min(2.0 * pause, LONGEST_FAULT_PAUSE_SECONDS if faulty else LONGEST_PAUSE_SECONDS)
        raise UnreachableError("the app master must run on until the arbiter answers", value="an order to stop")

    def _stub(self) -> rpc.ApplicationMasterProtocolStub:
        if self._channel is None:
            self._channel = self._system.dial(Address.given(self._address), [("grpc.max_reconnect_backoff_ms", 1000)])
        return rpc.ApplicationMasterProtocolStub(self._channel)

    def _metadata(self) -> Metadata:
        try:
            self._token = read_token(self._token_file)
        except DamagedTokenError as error:
            if not self._token:
                raise
            log.warning("token.damaged", why=str(error))  # the last good one stays valid
        return (("authorization", f"Bearer {self._token}"),)


def _is_too_often(error: grpc.RpcError) -> bool:
    """Return whether a call was refused only because of the rate limit."""
    metadata: Any = error.trailing_metadata() or ()
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and any(key == PUSHBACK for key, _ in metadata)
