"""Finds the policies that suit a cluster and a workload, and suggests a suitable preset for each other policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eunomia.contract.contracts import Feature
from eunomia.errors import InputError, InputErrors
from eunomia.model.cluster import Cluster
from eunomia.model.shapes import value
from eunomia.platform.profiles import Profile
from eunomia.units import Stage
from eunomia_testbed.workload import Workload


@value
class LeftOut:
    """A policy that does not suit the cluster or the workload."""

    policy: str
    reason: str
    nearest: str | None = None
    """The suitable preset that shares the most plugins with the policy; None: no preset suits."""

    @property
    def text(self) -> str:
        """Return, as text, the policy, the reason, and the suitable preset that shares the most plugins with it."""
        if self.nearest is None:
            return f"{self.policy}: {self.reason}"
        shares = f"{self.nearest} runs here and shares the most plugins with it, which is no recommendation"
        return f"{self.policy}: {self.reason}; {shares}"


def fitted(profiles: Mapping[str, Profile], cluster: Cluster) -> tuple[dict[str, Profile], list[LeftOut]]:
    """Return the policies that suit a cluster, and a list of the others with reasons.

    Args:
        profiles: policies by name.
        cluster: the cluster.
    """
    kept: dict[str, Profile] = {}
    left: list[LeftOut] = []
    for name, profile in profiles.items():
        reason = unsuited(profile, cluster)
        if reason is None:
            kept[name] = profile
        else:
            left.append(LeftOut(policy=name, reason=reason, nearest=nearest(profile, cluster)))
    return kept, left


def unsuited(profile: Profile, cluster: Cluster) -> str | None:
    """Return why a policy does not suit a cluster; None: it suits."""
    try:
        profile.stages(cluster)
    except InputErrors as error:
        by_subject = {each.rule.partition(" for ")[0]: each for each in reversed(error.errors)}
        return "; ".join(_plain(each) for each in reversed(by_subject.values()))
    except InputError as error:
        return _plain(error)
    return None


def _plain(error: InputError) -> str:
    return error.rule + (f", but got {error.value}" if error.value else "")


def nearest(profile: Profile, cluster: Cluster) -> str | None:
    """Return the preset that suits a cluster and shares the most plugins with a policy; None: no preset suits."""
    mine = _parts(profile)
    best: tuple[int, str] | None = None
    for name in profile.registry.presets():
        other = Profile.load(name, registry=profile.registry)
        shared = len(mine & _parts(other))
        if name != profile.name and (best is None or shared > best[0]) and unsuited(other, cluster) is None:
            best = (shared, name)
    return None if best is None else best[1]


def _parts(profile: Profile) -> frozenset[tuple[str, str]]:
    stages: Mapping[Stage, str] = profile.plugins
    refiners = profile.stages().refiner_names
    return frozenset(
        [*((stage.value, plugin) for stage, plugin in stages.items()), *(("refiner", r) for r in refiners)]
    )


def one_size_each(workloads: Iterable[Workload]) -> bool:
    """Return whether every job of the workloads has a fixed size."""
    return not any(bool((each.jobs.least < each.jobs.most).any()) for each in workloads)


def size_notes(profiles: Mapping[str, Profile], workloads: Sequence[Workload]) -> list[str]:
    """Return a sentence on policies that choose sizes, if no job has several sizes; otherwise an empty list."""
    if not one_size_each(workloads):
        return []
    names = [name for name, profile in profiles.items() if Feature.MANY_SIZES in profile.stages().needs]
    if not names:
        return []
    return [
        f"all jobs have one size, so that {', '.join(names)} can grow or shrink none of them and only order them; "
        "--elastic 1..8 gives jobs sizes to choose from"
    ]


def fitting_presets(
    names: Sequence[str], cluster: Cluster, workloads: Sequence[Workload]
) -> tuple[dict[str, Profile], list[LeftOut]]:
    """Return the named policies that suit a cluster and workloads, and a list of the others with reasons.

    A policy that chooses sizes is left out if no job has several sizes.

    Args:
        names: presets, profile files or plugins.
        cluster: the cluster.
        workloads: the workloads to simulate.
    """
    kept, left = fitted({name: Profile.load(name) for name in names}, cluster)
    if one_size_each(workloads):
        for name in [name for name, profile in kept.items() if Feature.MANY_SIZES in profile.stages().needs]:
            reason = "all jobs have one size, and it chooses sizes (--elastic 1..8 gives jobs sizes)"
            left.append(LeftOut(policy=name, reason=reason))
            del kept[name]
    return kept, sorted(left, key=lambda each: list(names).index(each.policy))
