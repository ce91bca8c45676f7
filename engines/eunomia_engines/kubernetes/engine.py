"""The engine of Kubernetes: a Job with one pod for each node, which Kubernetes or Kueue admits and may end."""

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eunomia.errors import EunomiaError
from eunomia.extras import is_installed, remedy
from eunomia_appmaster.node.private_files import write_private
from eunomia_engines.engine import (
    EngineFinding,
    EngineNode,
    EngineRefusedError,
    EngineSilentError,
    each_once,
)
from eunomia_engines.kubernetes.api import MOST_TRIES, RIGHTS, KubeApi, KubeError, connect, own_namespace
from eunomia_engines.kubernetes.keep_request import FOLDER, KeepRequest
from eunomia_engines.kubernetes.states import JobFacts, nodes_of

ASKS: Final = "asks.json"
"""Name of the file, in the engine's folder, with the names of requested Jobs for which no answer came."""
SUFFIX_BYTES: Final = 4


class KubernetesEngine:
    """Requests nodes from Kubernetes by creating one Job for each.

    ``nodes`` lists Jobs and pods at each call and does not rely on events: a list includes the Jobs that this process
    has created, while an event may be late, lost or sent twice.

    Args:
        request: the request of the manifest.
        state: the arbiter's state folder.
        api: the Jobs and pods of the request's namespace.
    """

    def __init__(self, request: KeepRequest, state: Path, api: KubeApi) -> None:
        self._request, self._asks, self._api = request, state / FOLDER / ASKS, api
        self.names: Mapping[str, str] = {}
        """Names of Jobs by uid, as of the last call of ``nodes``."""

    def nodes(self) -> Sequence[EngineNode]:
        """Return the Jobs with the cluster's label as nodes, by one list call for pods and one for Jobs."""
        try:
            pods, _ = self._api.pods()  # before Jobs, so that a listed pod's Job is listed, unless deleted since
            jobs, _ = self._api.jobs()
        except KubeError as fault:
            raise EngineSilentError("Kubernetes must list Jobs and pods", value=fault.words) from fault
        self.names = {job.uid: job.name for job in jobs}
        return each_once(nodes_of(jobs, pods))

    def ask(self, count: int) -> Sequence[str]:
        """Create Jobs, and return their uids.

        A Job's name is recorded before the call. A request whose answer was lost is repeated with the same name, which
        Kubernetes refuses if the Job exists: so no request creates two Jobs.
        """
        open_names, made = self._open_names() if count > 0 else [], list[str]()
        for _ in range(count):
            is_open = bool(open_names)
            name = open_names.pop(0) if is_open else self._new_name()
            self._note([name, *open_names])
            try:
                made.append(self._make(name).uid)
            except KubeError as fault:
                if fault.is_passing:
                    raise EngineSilentError("Kubernetes must make a Job", value=fault.words) from fault
                # A refusal proves nothing about an earlier call for the same Job, which may still arrive.
                self._note([name, *open_names] if is_open else open_names)
                if made:
                    return made
                raise EngineRefusedError("Kubernetes must accept the Job of a node", value=fault.words) from fault
            self._note(open_names)
        return made

    def give_back(self, node: str) -> None:
        """Delete the Job with this uid, so that its pod gets SIGTERM; Kubernetes itself deletes ended Jobs."""
        try:
            for _ in range(MOST_TRIES):
                job = next((job for job in self._jobs() if job.uid == node), None)
                if job is None or job.is_ending or job.is_over:
                    return
                try:
                    self._api.delete(job)
                    return
                except KubeError as fault:
                    if fault.status == 404:
                        return
                    if fault.status != 409:  # the Job has changed, or another one has its name: read again
                        raise
        except KubeError as fault:
            raise EngineSilentError("Kubernetes must delete the Job of a node", value=fault.words) from fault

    def _jobs(self) -> Sequence[JobFacts]:
        try:
            return self._api.jobs()[0]
        except KubeError as fault:
            raise EngineSilentError("Kubernetes must list Jobs", value=fault.words) from fault

    def _make(self, name: str) -> JobFacts:
        """Create a Job; an existing Job of this name is that of an earlier request whose answer was lost."""
        meta = {**self._request.job["metadata"], "name": name}
        document = {**self._request.job, "metadata": meta}
        tries = 0
        while True:
            try:
                return self._api.create(document)
            except KubeError as error:
                if error.status != 409:
                    raise
                if error.reason == "AlreadyExists":
                    return self._api.job(name)
                tries += 1
                if tries == MOST_TRIES:  # such as a quota that others change at the same time
                    raise KubeError(503, error.reason, error.words) from error

    def _new_name(self) -> str:
        return f"{self._request.job['metadata']['name']}-{secrets.token_hex(SUFFIX_BYTES)}"

    def _open_names(self) -> list[str]:
        """Return the names of requested Jobs for which no answer came and that are not listed."""
        try:
            noted = json.loads(self._asks.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        names = [name for name in noted if isinstance(name, str)] if isinstance(noted, list) else []
        known = {job.name for job in self._jobs()} if names else set[str]()
        return [name for name in names if name not in known]

    def _note(self, names: Sequence[str]) -> None:
        write_private(self._asks, json.dumps(list(names)).encode(), sync=True)


class KubernetesKind:
    """Kubernetes, as ``eunomia engine check kubernetes`` finds it.

    Args:
        client: returns a client of Kubernetes.
    """

    def __init__(self, client: Callable[[], Any] = connect) -> None:
        self._client = client

    def check(self) -> Sequence[EngineFinding]:
        """Return which prerequisites of Kubernetes are found and which are missing; changes and raises nothing."""
        if not is_installed("kubernetes"):
            text = f"the Python client of Kubernetes must be installed: {remedy('kubernetes')}"
            return [EngineFinding(is_good=False, text=text)]
        try:
            api = KubeApi(self._client(), own_namespace(), "none")
            return findings(api)
        except (EunomiaError, KubeError) as error:
            return [EngineFinding(is_good=False, text=" ".join(str(error).split()))]

    def engine(self, state: Path) -> KubernetesEngine:
        """Return the engine of a state folder of ``eunomia kubernetes keep``.

        Raises:
            InputError: the state folder has no request, or there is no client or no configuration of the client.
        """
        request = KeepRequest.load(state)
        return KubernetesEngine(request, state, KubeApi(self._client(), request.namespace, request.keeper))


def findings(api: KubeApi) -> Sequence[EngineFinding]:
    """Return the server's version, and whether this account has the rights of a keeper.

    Raises:
        EngineSilentError: the server does not answer.
        KubeError: the server refuses the query.
    """
    found = [EngineFinding(is_good=True, text=f"API server of Kubernetes {api.version()}")]
    if lacking := lacking_rights(api):
        text = f"namespace {api.namespace}: this account must have the right to {', '.join(lacking)}"
        return [*found, EngineFinding(is_good=False, text=text)]
    text = f"namespace {api.namespace}: this account may make, list, watch and delete Jobs, and list and watch pods"
    return [*found, EngineFinding(is_good=True, text=text)]


def lacking_rights(api: KubeApi) -> Sequence[str]:
    """Return the rights of a keeper that this account lacks, such as ``create jobs``.

    Raises:
        EngineSilentError: the server does not answer.
        KubeError: the server refuses the query.
    """
    return [f"{verb} {resource}" for verb, group, resource in RIGHTS if not api.may(verb, group, resource)]
