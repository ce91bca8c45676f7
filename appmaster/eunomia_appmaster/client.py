"""A client of the arbiter, for commands and programs."""

import os
import stat
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc

from eunomia.errors import EunomiaError, InputError, InputErrors, UnreachableError
from eunomia.model.shapes import value
from eunomia.platform.toml_bounds import check_size
from eunomia.units import parse_duration
from eunomia_appmaster.app.names import no_such_app
from eunomia_appmaster.app.submission import login_name
from eunomia_appmaster.explaining.best_jobs import BestJob, best_job, check_metric
from eunomia_appmaster.explaining.failures import failure_text
from eunomia_appmaster.join_administration import JoinAdministration
from eunomia_appmaster.node_administration import NodeAdministration
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.protocol import arbiter_pb2_grpc as rpc
from eunomia_appmaster.protocol.connecting import ADDRESS_FILE, WAITS, Address, check_target, tls_error
from eunomia_appmaster.protocol.pages import MOST_LISTED, PAGE
from eunomia_appmaster.service.settings import DEFAULT_ADDRESS, default_state_dir, run_dir
from eunomia_appmaster.token_files import read_token, token_fault
from eunomia_appmaster.user_administration import UserAdministration

A = TypeVar("A")

TIMEOUT_SECONDS = 30.0
RETRIES_SECONDS = 5.0
"""Seconds for which a call is repeated while the arbiter restarts."""
MOST_ANSWER_BYTES = 256 * 2**20
"""Maximum size of an answer in bytes: above gRPC's default (4 MiB), so that ``apps --all`` lists thousands of apps."""
OVER = ("finished", "failed", "cancelled")
SUSPENDED = "suspended"
_ENV = ("PATH", "HOME", "LANG", "VIRTUAL_ENV")


@value
class FailedJob:
    """A trial that failed permanently."""

    job: str
    why: str
    log: str
    """Text of the trial's stderr."""


@value
class Ended:
    """The outcome of an ended app, and its results."""

    name: str
    state: str
    """Outcome: finished, failed or cancelled."""
    why: str
    jct_seconds: float
    best_job: BestJob | None
    """The trial with the best metric at any step; None if no trial logged a finite metric."""
    failed: int = 0
    """Number of the app's failed trials."""
    failures: tuple[FailedJob, ...] = ()
    """The last failed trials, oldest first."""
    trouble: str = ""
    """One line with the number of failed trials, the last error and the path of its log; empty if none failed."""

    @property
    def best(self) -> BestJob | None:
        """The best trial: another name of ``best_job``."""
        return self.best_job


class SubmittedApp:
    """An app that the arbiter has accepted.

    Attributes:
        name: unique name: the one in the app file, with a number if that was taken.
        submitted: the arbiter's whole answer.
    """

    def __init__(self, client: "Client", submitted: pb.SubmitResponse) -> None:
        self.name = submitted.app
        self.submitted = submitted
        self._client = client

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def wait(self, timeout: str | None = None, *, poll_seconds: float = 0.5) -> Ended:
        """Wait until the app has ended; see ``Client.wait``."""
        return self._client.wait(self.name, timeout, poll_seconds=poll_seconds)

    def more_trials(self, trials: int) -> pb.MoreTrialsResponse:
        """Add trials to the app, which has ended, and let its search continue; see ``Client.more_trials``."""
        return self._client.more_trials(self.name, trials)

    def best(self) -> BestJob | None:
        """Return the best trial so far; see ``Client.best``."""
        return self._client.best(self.name)


class Client(UserAdministration, NodeAdministration, JoinAdministration):
    """A connection to an arbiter; a context manager. A call that gets no answer raises ``UnreachableError``.

    Args:
        address: host:port; None: ``EUNOMIA_ADDRESS``, else the running arbiter's.
        token_file: holds the operator's token, or a user's; None: ``EUNOMIA_TOKEN_FILE``, else the running arbiter's.
        state_dir: the arbiter's state folder, in which both are found; None: the default one.
        timeout_seconds: time limit of one call, in seconds.

    Raises:
        InputError: a malformed address, or a file or folder that is not a path.
        UnreachableError: no arbiter serves the state folder.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        token_file: Path | str | None = None,
        state_dir: Path | str | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> None:
        state_dir = _path(state_dir, "state_dir")
        place = run_dir(state_dir or default_state_dir())
        named = _path(token_file, "token_file") or os.environ.get("EUNOMIA_TOKEN_FILE")
        self._token_file = Path(named) if named else place / "token"
        self._timeout = timeout_seconds
        self._address_files = (self._token_file.with_name(ADDRESS_FILE), place / ADDRESS_FILE)
        named_dir = state_dir or (default_state_dir() if os.environ.get("EUNOMIA_STATE_DIR") else None)
        self._address = _found(address, *self._address_files, state_dir=named_dir)
        self.address = self._address.target
        self._channel = self._address.channel(
            [("grpc.max_reconnect_backoff_ms", 500), ("grpc.max_receive_message_length", MOST_ANSWER_BYTES)]
        )
        self._stub = rpc.ClientProtocolStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def submit(
        self, path: Path | str, *, text: str | None = None, user: str | None = None, wait_for_machines: bool = False
    ) -> SubmittedApp:
        """Submit an app file.

        Args:
            path: the file; its folder is the workers' working folder.
            text: the content to submit; None: read the file.
            user: the app's owner if the file names none; None: the login name.
            wait_for_machines: whether its smallest gang may be larger than the cluster has ever been.

        Raises:
            InputErrors: all errors of the file; InputError: the file cannot be read.
        """
        path = Path(path)
        if text is None:
            text = _text(path, "an app file")
        request = pb.SubmitRequest(
            app_file=text,
            file_name=_utf8(path.name, "an app file's name"),
            folder=_utf8(str(path.resolve().parent), "an app file's folder"),
            user=user or login_name(),
            env={name: _utf8(os.environ[name], f"{name} of the environment") for name in _ENV if name in os.environ},
            request_id=uuid.uuid4().hex,
            wait_for_machines=wait_for_machines,
        )
        return SubmittedApp(self, self._call(self._stub.Submit, request))

    def list(self, *, ended: bool = True, jobs: bool = False, slots: bool = False, app: str = "") -> pb.ListResponse:
        """Return the live apps, with ``ended`` also ended ones, or only ``app``; on demand also jobs and all slots."""
        name, before = _utf8(app, "an app's name"), 0 if ended and not app else None
        request = pb.ListRequest(ended=ended, jobs=jobs, slots=slots, app=name, ended_before=before)
        answer: pb.ListResponse = self._call(self._stub.List, request)
        if answer.more_ended_before:
            self._add_ended(answer)
        return answer

    def _add_ended(self, answer: pb.ListResponse) -> None:
        """Request the remaining pages of apps that ended long ago, and add them to an answer with the last page."""
        before, known = answer.more_ended_before, {app.app: app for app in answer.apps}
        most = len(known) + MOST_LISTED - PAGE
        while before and len(known) < most:
            page: pb.ListResponse = self._call(self._stub.List, pb.ListRequest(ended=True, ended_before=before))
            known = {app.app: app for app in page.apps} | known
            before = page.more_ended_before
        listed = sorted(known.values(), key=lambda app: app.arrived_at)
        del answer.apps[:]
        answer.apps.extend(listed)

    def app(self, name: str) -> pb.App:
        """Return the message with the state of one app.

        Raises:
            InputError: no app has this name.
        """
        found = self.list(app=name).apps
        if not found:
            raise no_such_app(name, self.names())
        return found[0]

    def wait(
        self,
        name: str,
        timeout: str | None = None,
        *,
        poll_seconds: float = 0.5,
        on_look: Callable[[pb.App], None] | None = None,
    ) -> Ended:
        """Wait until an app has ended.

        Args:
            name: the app's name.
            timeout: a duration such as "30m"; None: as long as it takes.
            poll_seconds: seconds between two polls.
            on_look: called with the app, as the arbiter lists it, at each poll before the end.

        Raises:
            EunomiaError: the app did not end in time, no app has this name, or ``timeout`` is malformed.
        """
        limit = None if timeout is None else float(parse_duration(timeout, name="timeout"))
        deadline = None if limit is None else time.monotonic() + limit
        while True:
            app = self.app(name)
            if app.state in OVER:
                return _ended(app)
            if on_look is not None:
                on_look(app)
            if deadline is not None and time.monotonic() > deadline:
                raise EunomiaError(f"{name} must be over within {timeout}", value=app.state)
            time.sleep(poll_seconds)

    def more_trials(self, name: str, trials: int) -> pb.MoreTrialsResponse:
        """Add trials to a search that has ended, and let it continue; finished trials stay.

        Args:
            name: the app's name.
            trials: number of trials to add, at least 1.

        Raises:
            InputError: ``trials`` is below 1, or the app is unknown, has not ended, is a single job, or lacks files.
        """
        most = 2**31 - 1  # what the message can hold; the arbiter checks the rest
        if not 1 <= trials <= most:
            raise InputError("the number of further trials must be at least 1", value=str(trials))
        request = pb.MoreTrialsRequest(app=_utf8(name, "an app's name"), trials=trials, request_id=uuid.uuid4().hex)
        return self._call(self._stub.MoreTrials, request)

    def best(self, name: str) -> BestJob | None:
        """Return the trial of an app whose metric was best at any step so far; the app may still run.

        Returns:
            The trial; None if no trial has logged a finite metric yet.

        Raises:
            InputError: there is no such app, or it names no metric.
        """
        app = self.app(name)
        check_metric(app)
        return best_job(app.standing)

    def names(self) -> Sequence[str]:
        """Return the names of all apps, active ones first."""
        apps = sorted(self.list().apps, key=lambda app: app.state in OVER)
        return [app.app for app in apps]

    def explanations(self, name: str) -> Sequence[pb.Explanation]:
        """Return why a job waits; for an app, an explanation for each waiting and each failed job.

        Raises:
            InputError: there is no such job or app.
        """
        return self._call(self._stub.Explain, pb.ExplainRequest(job=_utf8(name, "a job's name"))).explanations

    def explain(self, job: str) -> pb.Explanation:
        """Return why one job waits; see ``explanations``."""
        return self.explanations(job)[0]

    def cancel(self, app: str) -> pb.CancelResponse:
        """Cancel an app: end it and revoke its leases.

        Raises:
            InputError: no app has this name.
        """
        return self._call(self._stub.Cancel, pb.CancelRequest(app=_utf8(app, "an app's name")))

    def resume_app(self, app: str) -> pb.ResumeAppResponse:
        """Restart a suspended app at once, or resume one that failed because its app master ended too often.

        Raises:
            InputError: no app has this name, it did not fail for that reason, or its files are gone.
        """
        return self._call(self._stub.ResumeApp, pb.ResumeAppRequest(app=_utf8(app, "an app's name")), retry=False)

    def health(self) -> pb.HealthResponse:
        """Return the arbiter's health."""
        return self._call(self._stub.Health, pb.HealthRequest(), retry=False)

    def resume(self) -> pb.ResumeResponse:
        """Return from the fallback profile to the configured one."""
        return self._call(self._stub.Resume, pb.ResumeRequest())

    def accept_loss(self) -> pb.AcceptLossResponse:
        """Let the arbiter continue without the steps that its journal has lost; ``health().question`` names them.

        Raises:
            InputError: no steps are lost.
        """
        return self._call(self._stub.AcceptLoss, pb.AcceptLossRequest(), retry=False)

    def import_profile(self, path: Path | str) -> pb.SetProfileResponse:
        """Replace the rates that the arbiter keeps for a kind of job by those of a file.

        Raises:
            InputError: the file lacks rates, or is of another cluster; nothing was changed.
        """
        return self._call(self._stub.SetProfile, pb.SetProfileRequest(file=_text(Path(path), "a file of rates")))

    def drop_profile(self, kind: str) -> pb.SetProfileResponse:
        """Drop the rates that the arbiter keeps for a kind of job.

        Raises:
            InputError: no rates of this kind are known.
        """
        return self._call(self._stub.SetProfile, pb.SetProfileRequest(drop=_utf8(kind, "a kind's name")), retry=False)

    def _call(self, method: Callable[..., A], request: object, *, retry: bool = True) -> A:
        """Make a call, and repeat it for a while if the arbiter restarts.

        Every call may be repeated: a submission has a unique id.
        """
        deadline = time.monotonic() + (RETRIES_SECONDS if retry and self._was_here() else 0.0)
        while True:
            try:
                return method(request, timeout=self._timeout, metadata=self._metadata())
            except grpc.RpcError as error:
                away = error.code() is grpc.StatusCode.UNAVAILABLE and not self._distrusts(error)
                if not away or time.monotonic() > deadline:
                    raise self._error(error) from None
            time.sleep(0.2)

    def _was_here(self) -> bool:
        """Return whether there is an address file: an arbiter that did not withdraw it may be restarting."""
        return os.path.exists(self._token_file.with_name("address"))  # noqa: PTH110 - also under any name

    def _distrusts(self, error: grpc.RpcError) -> bool:
        """Return whether the arbiter answers with a certificate that the client does not trust."""
        return tls_error(self._address, error.details() or "") is not None

    def _cure(self) -> str:
        """Return the remedy to suggest when no arbiter answers."""
        running = [found for file in self._address_files if (found := Address.read(file)) is not None]
        if running and running[0].target != self.address:
            return f"one runs at {running[0].target}: leave --address and EUNOMIA_ADDRESS out to reach it"
        elsewhere = "--state-dir DIR or --address HOST:PORT, in Python Client(state_dir=DIR) or Client(address)"
        return f"eunomia serve starts one; {elsewhere}, finds one that runs elsewhere"

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        token = read_token(self._token_file)
        good = token.isascii() and token.isprintable()  # gRPC sends nothing else
        return (("authorization", f"Bearer {token}"),) if token and good else ()

    def _error(self, error: grpc.RpcError) -> EunomiaError:
        """Convert a gRPC error to one of Eunomia's own exceptions."""
        code, details = error.code(), error.details() or ""
        distrust = tls_error(self._address, details)
        if distrust is not None:
            return distrust
        if (own := _own_errors(error)) is not None:
            return own
        if code is grpc.StatusCode.UNAUTHENTICATED or code is grpc.StatusCode.PERMISSION_DENIED:
            return token_fault(self._token_file, self.address)
        if code is grpc.StatusCode.UNAVAILABLE and details == WAITS:
            rule = "an arbiter must hear the nodes that it knows, or have lost them, before it answers (try again)"
            return UnreachableError(rule, value=f"one that waits for them since its start ({self.address})")
        if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
            why = "no answer" if code is grpc.StatusCode.DEADLINE_EXCEEDED else _short(details)
            rule = f"an arbiter must be reachable ({self._cure()})"
            return UnreachableError(rule, value=why, place=self.address)
        if code is grpc.StatusCode.INVALID_ARGUMENT:
            return InputError(details)
        if code is grpc.StatusCode.NOT_FOUND:
            rule, _, got = details.partition(", but got ")
            return InputError(rule, value=got or None)
        return EunomiaError(f"the arbiter must answer without a fault of its own ({code.name})", value=_short(details))


def _path(given: object, name: str) -> Path | None:
    """Check that a caller's argument is a path, and return it as a ``Path``; None stays None.

    Raises:
        InputError: the argument is neither text nor a path.
    """
    if given is None or isinstance(given, Path):
        return given
    if not isinstance(given, str) or not given or "\0" in given:
        raise InputError(f"{name} must be a path", value=repr(given), place="Client")
    return Path(given)


def _found(named: str | None, *files: Path, state_dir: Path | None) -> Address:
    """Return the given address, else the address in the first existing address file."""
    target = named or os.environ.get("EUNOMIA_ADDRESS")
    if target:
        check_target(target, "--address" if named else "EUNOMIA_ADDRESS")
    known = next((address for file in files if (address := Address.read(file)) is not None), None)
    if target:
        ca_file = None if known is None or known.target != target else known.ca_file
        return Address.given(target) if ca_file is None else Address(target=target, ca_file=ca_file)
    if known is None and state_dir is not None:  # the default address may be that of another folder's arbiter
        how = f"eunomia serve --state-dir {state_dir} starts one; in Python Client(state_dir=DIR) names another folder"
        rule = f"an arbiter must serve the state folder ({how})"
        raise UnreachableError(rule, value="no address file", place=str(files[-1]))
    return known or Address.given(DEFAULT_ADDRESS)


def _own_errors(error: grpc.RpcError) -> InputError | None:
    """Return the input errors or the missing rights that a status carries as details; None: it carries none."""
    metadata: Any = error.trailing_metadata() or ()
    for key, content in metadata:
        if key == "eunomia-errors-bin":
            several = pb.Errors.FromString(content)
            return InputErrors(
                [
                    InputError(
                        one.rule,
                        value=one.value if one.HasField("value") else None,
                        place=one.place if one.HasField("place") else None,
                    )
                    for one in several.errors
                ]
            )
    return None


def _ended(app: pb.App) -> Ended:
    return Ended(
        name=app.app,
        state=app.state,
        why=app.why,
        jct_seconds=app.jct_seconds,
        best_job=best_job(app.standing),
        failed=app.failed,
        failures=tuple(FailedJob(job=one.job, why=one.why, log=one.log) for one in app.failures),
        trouble=failure_text(app),
    )


def _utf8(text: str, what: str) -> str:
    """Return the text if it is valid UTF-8, as messages require; a command line may contain any bytes.

    Raises:
        InputError: the text is not valid UTF-8.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what} must be text in UTF-8", value=ascii(text)) from error
    return text


def _text(path: Path, what: str) -> str:
    """Return the text of a file.

    Raises:
        InputError: the file does not exist, is a folder, is too large, or is not text in UTF-8.
    """
    try:
        state = path.stat()
        if not stat.S_ISREG(state.st_mode) and not stat.S_ISDIR(state.st_mode):  # reading it may never end, or block
            raise InputError(f"{what} must be a file", value="a device or a pipe", place=str(path))
        check_size(state.st_size, what, place=path.name)
        return path.read_text(encoding="utf-8-sig")  # a byte order mark is no part of the text
    except FileNotFoundError:
        raise InputError(f"{what} must exist", value="no file of this name", place=str(path)) from None
    except IsADirectoryError:
        raise InputError(f"{what} must be a file", value="a folder", place=str(path)) from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or an invalid file name
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"{what} must be readable text", value=why, place=str(path)) from error


def _short(details: str) -> str:
    words = details.lower()
    if "failed parsing http" in words:
        return "something that is no arbiter"
    if "name resolution" in words or "dns" in words or "name or service not known" in words:
        return "a host that is not known"
    return "connection refused" if "refused" in words else details[:200]
