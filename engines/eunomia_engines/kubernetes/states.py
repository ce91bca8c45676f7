"""Converts Jobs and pods of Kubernetes to an engine's nodes."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from eunomia.model.shapes import value
from eunomia_engines.engine import EngineNode, EngineSilentError, NodeState

ENDED: Final = ("Succeeded", "Failed")
PHASES: Final = ("Pending", "Running", *ENDED)
"""Known phases of a pod, without ``Unknown``: such a pod's machine is silent, and its processes may still run."""
CONTROLLER_LABEL: Final = "batch.kubernetes.io/controller-uid"
MOST_WORDS: Final = 300


@value
class JobFacts:
    """A Job, as far as the engine reads it.

    Attributes:
        created_at: Unix time in seconds; None: unknown.
        lasts: seconds after which Kubernetes ends the Job; None: no limit.
        is_suspended: whether Kueue or an operator has suspended the Job, so that its pods end and it waits.
        is_ending: whether the Job is being deleted.
        is_over: whether the Job is complete or has failed.
        why: reason and message of the Job's last true condition.
    """

    name: str
    uid: str
    created_at: float | None = None
    lasts: float | None = None
    is_suspended: bool = False
    is_ending: bool = False
    is_over: bool = False
    why: str = ""


@value
class PodFacts:
    """A pod, as far as the engine reads it.

    Attributes:
        job: uid of the Job that created the pod; empty: unknown.
        phase: Kubernetes' phase, such as ``Running``.
        machine: name of the pod's machine; empty: none yet.
        began_at: Unix time in seconds of its start; None: unknown.
        is_ending: whether the pod is being deleted.
        why: reason why the pod waits.
    """

    name: str
    job: str
    phase: str
    machine: str = ""
    began_at: float | None = None
    is_ending: bool = False
    why: str = ""

    @property
    def lives(self) -> bool:
        """Whether its processes may still run: Kubernetes does not report the pod's end."""
        return self.phase not in ENDED


def job_facts(found: Mapping[str, Any]) -> JobFacts:
    """Parse a Job from its JSON object.

    Raises:
        EngineSilentError: the Job has no name or uid, so it cannot be identified.
    """
    meta, spec, status = _below(found, "metadata"), _below(found, "spec"), _below(found, "status")
    name, uid = meta.get("name"), meta.get("uid")
    if not isinstance(name, str) or not name or not isinstance(uid, str) or not uid:
        raise EngineSilentError("each Job of Kubernetes must have a name and a uid", value=repr((name, uid)))
    true = [one for one in _items(status, "conditions") if one.get("status") == "True"]
    lasts = spec.get("activeDeadlineSeconds")
    return JobFacts(
        name=name,
        uid=uid,
        created_at=_time(meta.get("creationTimestamp")),
        lasts=float(lasts) if isinstance(lasts, int) else None,
        is_suspended=spec.get("suspend") is True,
        is_ending=bool(meta.get("deletionTimestamp")),
        is_over=any(one.get("type") in ("Complete", "Failed") for one in true),
        why=_words(true[-1]) if true else "",
    )


def pod_facts(found: Mapping[str, Any]) -> PodFacts:
    """Parse a pod from its JSON object."""
    meta, spec, status = _below(found, "metadata"), _below(found, "spec"), _below(found, "status")
    owners = [one for one in _items(meta, "ownerReferences") if one.get("kind") == "Job"]
    owner = owners[0].get("uid") if owners else _below(meta, "labels").get(CONTROLLER_LABEL)
    return PodFacts(
        name=str(meta.get("name", "")),
        job=str(owner or ""),
        phase=str(status.get("phase", "")),
        machine=str(spec.get("nodeName") or ""),
        began_at=_time(status.get("startTime")),
        is_ending=bool(meta.get("deletionTimestamp")),
        why=_why_waits(status),
    )


def nodes_of(jobs: Iterable[JobFacts], pods: Iterable[PodFacts]) -> Sequence[EngineNode]:
    """Return a node for each entry of a Job, and for each unlisted Job with a pod that may still run."""
    by_job: dict[str, list[PodFacts]] = {}
    for pod in pods:
        by_job.setdefault(pod.job, []).append(pod)
    listed = list(jobs)
    found = [node_of(job, by_job.get(job.uid, ())) for job in listed]
    gone = set(by_job) - {job.uid for job in listed} - {""}
    for uid in sorted(gone):
        living = [pod for pod in by_job[uid] if pod.lives]
        if living:
            why = f"pod {living[0].name} lives without its Job"
            found.append(EngineNode(id=uid, state=NodeState.ENDS, why=why, host=living[0].machine))
    return found


def node_of(job: JobFacts, pods: Sequence[PodFacts]) -> EngineNode:
    """Convert a Job to a node of the engine; an unknown or contradictory state is ``UNKNOWN``.

    A Job that has not ended creates its next pod itself. So a node whose pod has ended is already requested again, and
    only a node whose Job ends is replaced.
    """
    once = {pod.name: pod for pod in pods}
    living = [pod for pod in once.values() if pod.lives]
    state, why = _state(job, list(once.values()), living)
    if any(pod != once[pod.name] for pod in pods):
        state, why = NodeState.UNKNOWN, "a pod is listed in two states"
    machine = next((pod.machine for pod in living if pod.machine), "")
    began_at = next((pod.began_at for pod in living or once.values() if pod.began_at is not None), None)
    has_machine = state is not NodeState.ASKED
    ends_at = None if began_at is None or job.lasts is None else began_at + job.lasts
    return EngineNode(
        id=job.uid,
        state=state,
        why=why,
        host=machine if has_machine else "",
        asked_at=job.created_at,
        began_at=began_at if has_machine else None,
        ends_at=ends_at if has_machine else None,
    )


def _state(job: JobFacts, pods: Sequence[PodFacts], living: Sequence[PodFacts]) -> tuple[NodeState, str]:
    if strange := [pod.phase for pod in living if pod.phase not in PHASES]:
        return NodeState.UNKNOWN, f"a pod of phase {strange[0] or '(none)'}"
    stays = [pod for pod in living if not pod.is_ending]
    if len(stays) > 1:
        return NodeState.UNKNOWN, f"{len(stays)} pods of one node"
    if job.is_over and stays and not job.is_ending:
        return NodeState.UNKNOWN, "the Job is over, and its pod is not"
    if job.is_over and not living:
        return NodeState.ENDED, job.why
    if job.is_over or job.is_ending:
        return NodeState.ENDS, job.why or "the Job is being deleted"
    if job.is_suspended:  # by Kueue, for instance, which may admit it again
        return NodeState.ASKED, job.why or "suspended"
    if living and not stays:
        return NodeState.ASKED, "its pod ends, and its Job makes another"
    if stays and stays[0].phase == "Running":
        return NodeState.RUNS, ""
    if not stays and any(pod.phase == "Succeeded" for pod in pods):
        return NodeState.ENDS, "its pod has ended"
    return NodeState.ASKED, stays[0].why if stays else job.why


def _why_waits(status: Mapping[str, Any]) -> str:
    """Return why a pod waits: the scheduler's reason, else the kubelet's for a container; empty: none is given."""
    kinds = ("initContainerStatuses", "containerStatuses")
    states = [_below(one, "state") for kind in kinds for one in _items(status, kind)]
    waiting = [found for state in states if (found := _below(state, "waiting"))]
    not_true = [one for one in _items(status, "conditions") if one.get("status") == "False"]
    scheduled = [one for one in not_true if one.get("type") == "PodScheduled"]
    return next((text for one in (*scheduled, *waiting) if (text := _words(one))), "")


def _words(found: Mapping[str, Any]) -> str:
    """Return reason and message on one line."""
    parts = (str(found.get("reason") or ""), " ".join(str(found.get("message") or "").split()))
    return ": ".join(part for part in parts if part)[:MOST_WORDS]


def _below(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    below = found.get(key)
    return below if isinstance(below, dict) else {}


def _items(found: Mapping[str, Any], key: str) -> Sequence[Mapping[str, Any]]:
    below = found.get(key)
    return [one for one in below if isinstance(one, dict)] if isinstance(below, list) else []


def _time(text: object) -> float | None:
    """Parse a time in RFC 3339 to Unix time in seconds; None: the time is missing, or has another form."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.timestamp()
