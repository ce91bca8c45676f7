"""Encodes a plan as bytes for another process; profiles are sent as text and rebuilt there."""

import pickle

from eunomia.platform.profiles import Profile
from eunomia.platform.registry import default_registry
from eunomia_testbed.running.plan import Plan

_FIELDS = ("workloads", "cluster", "cluster_text", "loads", "options", "peer", "models", "rho", "unfair_above", "csv",
           "resampling", "limits")  # fmt: skip


def can_travel(plan: Plan) -> bool:
    """Return whether another process finds the same plugins: installed, or in files named in the environment."""
    return all(profile.registry is default_registry() for profile in plan.profiles.values())


def packed(plan: Plan) -> bytes:
    """Return a plan as bytes that ``unpacked`` decodes."""
    plain = {name: getattr(plan, name) for name in _FIELDS}
    profiles = {label: (profile.name, profile.resolved()) for label, profile in plan.profiles.items()}
    return pickle.dumps((plain, profiles))


def unpacked(data: bytes) -> Plan:
    """Return the plan encoded by ``packed``; only for bytes of the parent process, since unpickling runs code."""
    plain, profiles = pickle.loads(data)
    made = {label: Profile.parse(text, name=name, place=name) for label, (name, text) in profiles.items()}
    return Plan(profiles=made, **plain)
