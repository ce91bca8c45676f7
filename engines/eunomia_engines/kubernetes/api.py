"""Calls to an API server through the Kubernetes client: the Jobs of one keeper in one namespace, and their pods.

Answers are read as JSON instead of the client's types, which reject additions of newer servers.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eunomia.errors import InputError
from eunomia.extras import require
from eunomia.model.shapes import value
from eunomia_engines.engine import EngineSilentError
from eunomia_engines.kubernetes.states import JobFacts, PodFacts, job_facts, pod_facts

KEEPER_LABEL: Final = "eunomia-keeper"
"""Label of the Jobs that a keeper has created, and of their pods; its value is the cluster's name."""
CONNECT_SECONDS, READ_SECONDS, CALL_SECONDS = 5.0, 10.0, 30.0
"""Longest waits in seconds for a connection, for a part of an answer, and for a whole answer."""
PAGE: Final = 500
"""Maximum number of objects in one page of a list."""
MOST_TRIES: Final = 3
MOST_BYTES: Final = 64 * 2**20
RIGHTS: Final = (
    *((verb, "batch", "jobs") for verb in ("create", "delete", "get", "list", "watch")),
    *((verb, "", "pods") for verb in ("list", "watch")),
)
"""All rights that a keeper needs at the API server, only in its own namespace."""
IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
"""Variable that Kubernetes sets in each pod."""
NEEDS: Final = "the engine of Kubernetes"
EXPIRED: Final = 410
NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class KubeError(Exception):
    """The API server's refusal of a call.

    Attributes:
        status: the HTTP status.
        reason: Kubernetes' reason, such as ``AlreadyExists``.
        words: Kubernetes' message.
    """

    def __init__(self, status: int, reason: str, words: str) -> None:
        super().__init__(f"{status} {reason}: {words}")
        self.status, self.reason, self.words = status, reason, words

    @property
    def is_passing(self) -> bool:
        """Whether a repeated call may succeed, so that the refusal proves nothing."""
        return self.status in (401, 408, 429) or self.status >= 500


@value
class Happened:
    """An event of a watch: an object has changed; the present state must be read by a list."""

    kind: str
    version: str


def connect() -> Any:
    """Return a client with the pod's account, or outside of pods with the kubeconfig (``KUBECONFIG``); makes no call.

    Raises:
        InputError: the client is not installed, or there is no configuration.
    """
    require(["kubernetes"], of=NEEDS)
    from kubernetes import client, config

    made: Any = client.Configuration()
    made.retries = False  # the keeper's next look repeats a lost call
    try:
        if os.environ.get(IN_CLUSTER):
            config.load_incluster_config(client_configuration=made)
        else:
            file = os.environ.get("KUBECONFIG") or None
            config.load_kube_config(config_file=file, client_configuration=made, persist_config=False)
    except (config.ConfigException, OSError, ValueError) as error:
        rule = "Kubernetes must be named by a kubeconfig (KUBECONFIG or ~/.kube/config), or by the pod's own account"
        raise InputError(rule, value=" ".join(str(error).split())[:500]) from None
    return client.ApiClient(made)


def own_namespace() -> str:
    """Return the namespace of the pod's account or of the kubeconfig's context; ``default`` if none is named."""
    from kubernetes import config

    try:
        if os.environ.get(IN_CLUSTER):
            return NAMESPACE.read_text(encoding="utf-8").strip()
        _, active = config.list_kube_config_contexts(os.environ.get("KUBECONFIG") or None)
    except (config.ConfigException, OSError, ValueError):
        return "default"
    return str(active.get("context", {}).get("namespace") or "default")


class KubeApi:
    """The Jobs and pods with one keeper's label in one namespace.

    Each call ends within ``CALL_SECONDS``, raises ``EngineSilentError`` if the server does not answer, and
    ``KubeError`` if it refuses.

    Args:
        client: a client of Kubernetes.
        namespace: namespace of all objects.
        keeper: value of ``KEEPER_LABEL``.
    """

    def __init__(self, client: Any, namespace: str, keeper: str) -> None:
        from kubernetes.client import AuthorizationV1Api, BatchV1Api, CoreV1Api, VersionApi

        self.namespace, self._selector = namespace, f"{KEEPER_LABEL}={keeper}"
        self._batch, self._core, self._versions = BatchV1Api(client), CoreV1Api(client), VersionApi(client)
        self._rights = AuthorizationV1Api(client)

    def version(self) -> str:
        """Return the server's version, such as ``v1.31.2``."""
        return str(_call(self._versions.get_code).get("gitVersion", "of no known version"))

    def may(self, verb: str, group: str, resource: str) -> bool:
        """Return whether the server would allow this account a call on a resource of an API group."""
        asked = {"namespace": self.namespace, "verb": verb, "group": group, "resource": resource}
        answer = _call(self._rights.create_self_subject_access_review, {"spec": {"resourceAttributes": asked}})
        return bool(answer.get("status", {}).get("allowed", False))

    def jobs(self) -> tuple[Sequence[JobFacts], str]:
        """Return the present Jobs, and the resource version from which a watch yields later changes."""
        items, version = self._all(self._batch.list_namespaced_job)
        return [job_facts(item) for item in items], version

    def pods(self) -> tuple[Sequence[PodFacts], str]:
        """Return the present pods, and the resource version from which a watch yields later changes."""
        items, version = self._all(self._core.list_namespaced_pod)
        return [pod_facts(item) for item in items], version

    def job(self, name: str) -> JobFacts:
        """Return the Job with this name, whatever its labels."""
        return job_facts(_call(self._batch.read_namespaced_job, name, self.namespace))

    def create(self, document: Mapping[str, Any]) -> JobFacts:
        """Create a Job and return it."""
        return job_facts(_call(self._batch.create_namespaced_job, self.namespace, dict(document)))

    def delete(self, job: JobFacts) -> None:
        """Delete a Job by name and uid; the Job stays listed until its pods have ended."""
        body = {"propagationPolicy": "Foreground", "preconditions": {"uid": job.uid}}
        _call(self._batch.delete_namespaced_job, job.name, self.namespace, body=body)

    def watch(self, kind: str, version: str, seconds: float) -> Iterator[Happened]:
        """Yield the events of ``jobs`` or ``pods`` after a resource version, for at most ``seconds``.

        Raises:
            KubeError: the server refuses; status 410: the version has expired.
        """
        listed = self._batch.list_namespaced_job if kind == "jobs" else self._core.list_namespaced_pod
        whole = max(1, int(seconds))
        lines = _lines(
            listed,
            self.namespace,
            label_selector=self._selector,
            resource_version=version,
            allow_watch_bookmarks=True,
            watch=True,
            timeout_seconds=whole,
            seconds=whole + READ_SECONDS,
        )
        for line in lines:
            event = _json(line)
            found = event.get("object")
            below: Mapping[str, Any] = found if isinstance(found, dict) else {}
            if event.get("type") == "ERROR":
                raise _fault(int(below.get("code", 0) or 0), below)
            yield Happened(
                kind=str(event.get("type", "")), version=str(below.get("metadata", {}).get("resourceVersion", ""))
            )

    def _all(self, listed: Callable[..., Any]) -> tuple[list[Mapping[str, Any]], str]:
        """Return all objects of a paged list and its version; if a page has expired, the list is restarted."""
        for _ in range(MOST_TRIES):
            found: list[Mapping[str, Any]] = []
            more: dict[str, str] = {}
            try:
                while True:
                    page = _call(listed, self.namespace, label_selector=self._selector, limit=PAGE, **more)
                    found += page.get("items") or ()
                    meta = page.get("metadata") or {}
                    if not meta.get("continue"):
                        return found, str(meta.get("resourceVersion", ""))
                    more = {"_continue": str(meta["continue"])}
            except KubeError as fault:
                if fault.status != EXPIRED:
                    raise
        raise EngineSilentError("Kubernetes must list all objects before their version expires")


def _call(call: Callable[..., Any], *args: Any, **options: Any) -> Mapping[str, Any]:
    """Make a call and return the JSON object in its answer."""
    return _json(b"".join(_parts(call, *args, seconds=CALL_SECONDS, **options)))


def _lines(call: Callable[..., Any], *args: Any, **options: Any) -> Iterator[bytes]:
    """Make a call and yield the lines of its answer as they arrive."""
    rest = b""
    for part in _parts(call, *args, **options):
        *lines, rest = (rest + part).split(b"\n")
        yield from (line for line in lines if line.strip())


def _parts(call: Callable[..., Any], *args: Any, seconds: float, **options: Any) -> Iterator[bytes]:
    """Make a call and yield its answer in parts.

    Raises:
        KubeError: the server refuses.
        EngineSilentError: the server does not answer within ``seconds``.
    """
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    deadline, size, answer = time.monotonic() + seconds, 0, None
    wait = max(READ_SECONDS, seconds) if options.get("watch") else READ_SECONDS
    try:
        answer = call(*args, _preload_content=False, _request_timeout=(CONNECT_SECONDS, wait), **options)
        for part in answer.stream(decode_content=True):
            size += len(part)
            if time.monotonic() > deadline or (size > MOST_BYTES and not options.get("watch")):
                raise EngineSilentError(f"Kubernetes must answer within {seconds:g} s", value=f"{size} bytes")
            yield part
    except ApiException as error:
        if not error.status:  # a TLS error
            text = " ".join(str(error.reason).split())[:500]
            raise EngineSilentError("the API server of Kubernetes must answer", value=text) from error
        raise _fault(int(error.status), _refusal(error.body)) from error
    except (HTTPError, ConfigException, OSError) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        raise EngineSilentError("the API server of Kubernetes must answer", value=text) from error
    finally:
        if answer is not None:
            answer.close()


def _fault(status: int, found: Mapping[str, Any]) -> KubeError:
    words = str(found.get("message", "") or f"HTTP {status}")
    return KubeError(status, str(found.get("reason", "") or status), " ".join(words.split())[:1000])


def _refusal(body: str | bytes | None) -> Mapping[str, Any]:
    """Return the JSON object in a refusal, which may also be plain text, for instance from a proxy."""
    text = body.decode("utf-8", errors="replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"message": text[:200]}


def _json(text: bytes) -> Mapping[str, Any]:
    """Parse text that must be a JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    shown = text[:200].decode("utf-8", errors="replace")
    raise EngineSilentError("Kubernetes must answer with an object", value=shown)
