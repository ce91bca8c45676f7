"""Serialize and deserialize the whole state, for the checkpoints in a journal."""

import dataclasses
import json
import zlib
from base64 import b64decode, b64encode
from typing import Any

from eunomia.contract.codec import decode, encode
from eunomia.contract.memos import Memo, read_memo
from eunomia.contract.snapshot import Measured
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster, Machine
from eunomia.model.leases import Lease, LeaseState, Probing
from eunomia.store.facts import KeptReports
from eunomia.store.saved_tables import restore_tables, saved_tables
from eunomia.store.state import OpenOffer, State
from eunomia.units import AppId, Basis, Cause, Locality, Seconds, Stage, Version

FORMAT = 2
SCALARS = (
    "seed",
    "round",
    "version",
    "last_epoch",
    "last_lease",
    "last_offer",
    "arrivals",
    "cause_since",
    "stage_wake_at",
    "last_boundary",
    "faults_in_row",
    "fallen_back",
    "contention_area",
)
MAPS = {
    "user_rows": "users",
    "app_rows": "apps",
    "job_rows": "jobs",
    "kinds": "kinds",
    "tuner_kinds": "tuner_kinds",
    "plugins": "plugins",
    "outcomes": "outcomes",
}
"""Attributes of ``Names`` by name in a checkpoint."""


_MACHINE = [field.name for field in dataclasses.fields(Machine)]
_NAMED = 3
"""Number of machine fields in older checkpoints: name, type and number of GPUs."""


def save_state(state: State) -> bytes:
    """Serialize the state; each memo is serialized by its plugin."""
    made: dict[str, Any] = {
        "format": FORMAT,
        "gpus": state.cluster.gpus,
        "machines": [_row(machine) for machine in state.cluster.machines],
        "types": state.cluster.gpu_types,
        "racks": state.cluster.racks,
        "left": sorted(state.cluster.left),
        "draining": sorted(state.capacity.draining.items()),
        "drained": sorted(state.capacity.drained),
        "tables": saved_tables(state),
        "scalars": {"now": state.now} | {name: getattr(state.counters, name) for name in SCALARS},
        "maps": {name: dict(getattr(state.names, own)) for name, own in MAPS.items()},
        "causes": sorted(cause.value for cause in state.counters.causes),
        "forecasts": [[row, encode(forecast)] for row, forecast in state.reports.forecasts.items()],
        "measured": [[_measured(seen) for seen in rates] for rates in state.reports.measured.values()],
        "measured_at_others": [
            [_measured(seen) for seen in rates] for rates in state.reports.measured_at_others.values()
        ],
        "profiles": [[kind, [encode(rate) for rate in rates]] for kind, rates in state.reports.profiles.items()],
        "adaptations": [[row, encode(kept)] for row, kept in state.reports.adaptations.items()],
        "coming_regimes": [
            [row, [encode(one) for one in regimes]] for row, regimes in state.reports.coming_regimes.items()
        ],
        "leases": [
            {field.name: _plain(getattr(lease, field.name)) for field in dataclasses.fields(lease)}
            for lease in state.leases.values()
        ],
        "leaving": [[lease, sorted(gpus)] for lease, gpus in state.owners.leaving.items()],
        "starts_at": [[job, time] for job, time in state.reports.starts_at.items()],
        "held": state.reports.held,
        "wishes": [[job, *wish] for job, wish in state.reports.wishes.items()],
        "memos": [
            [plugin, stage.value, memo.version, b64encode(memo.to_bytes()).decode()]
            for (plugin, stage), memo in state.stages.memos.items()
        ],
        "open": None
        if state.open is None
        else [
            encode(state.open.offer),
            [[app, encode(form)] for app, form in state.open.bids.items()],
            list(state.open.asked.items()),
        ],
    }
    return zlib.compress(json.dumps(made).encode(), 1)  # 10,000 jobs: 0.1 MB instead of 2.6 MB


def load_state(
    data: bytes, cluster: Cluster, memo_types: dict[tuple[str, Stage], type[Memo]], *, plain: bool = False
) -> State:
    """Deserialize a state that ``save_state`` returned; ``memo_types`` has the memo class of each plugin and stage.

    Machines that only the checkpoint contains joined later and are added to the cluster; machines that only
    ``cluster`` contains are new and free.

    A memo whose plugin is not loaded is dropped, so that its stage starts without a memo.

    Raises:
        InputError: the format is unknown, or a machine differs between the checkpoint and the cluster.
    """
    made = json.loads(data if data.startswith(b"{") else zlib.decompress(data))
    if made["format"] != FORMAT:
        raise InputError(f"a checkpoint must be of format {FORMAT}", value=str(made["format"]))
    state = State(_cluster_of(made, cluster), plain=plain)
    restore_tables(state, made["tables"])
    state.capacity.draining = {int(gpu): Seconds(until) for gpu, until in made.get("draining", ())}
    state.capacity.drained = set(made.get("drained", ()))
    state.now = Seconds(made["scalars"]["now"])
    for name in SCALARS:
        setattr(state.counters, name, made["scalars"][name])
    for name, own in MAPS.items():
        setattr(state.names, own, dict(made["maps"][name]))
    state.counters.version = Version(state.counters.version)
    state.counters.causes = frozenset(map(Cause, made["causes"]))
    state.reports = KeptReports(
        forecasts={int(row): decode(forecast) for row, forecast in made["forecasts"]},
        measured=_rates(made["measured"]),
        measured_at_others=_rates(made.get("measured_at_others", ())),
        profiles={int(kind): tuple(map(decode, rates)) for kind, rates in made.get("profiles", ())},
        adaptations={int(row): decode(kept) for row, kept in made.get("adaptations", ())},
        coming_regimes={int(row): tuple(map(decode, kept)) for row, kept in made.get("coming_regimes", ())},
        starts_at={int(job): float(time) for job, time in made["starts_at"]},
        held=dict(made.get("held", {})),
        wishes={int(job): (gpu_type, most) for job, gpu_type, most in made.get("wishes", ())},
    )
    for lease in made["leases"]:
        kept = _kept_lease(lease)
        state.leases[kept.id] = kept
        if kept.probe is not None:
            state.owners.probing[kept.id] = kept.probe.until
    state.owners.leaving = {int(lease): set(gpus) for lease, gpus in made["leaving"] if gpus}
    for plugin, stage, version, memo in made["memos"]:
        kind = memo_types.get((plugin, Stage(stage)))
        read = None if kind is None else read_memo(kind, version, b64decode(memo))
        if read is not None:
            state.stages.memos[plugin, Stage(stage)] = read
    if made["open"] is not None:
        offer, bids, asked = made["open"]
        state.open = OpenOffer(
            offer=decode(offer),
            bids={int(app): decode(form) for app, form in bids},
            asked={int(row): AppId(app) for row, app in asked},
        )
    state.rebuild()
    return state


def _row(machine: Machine) -> list[Any]:
    return [getattr(machine, field.name) for field in dataclasses.fields(machine)]


def _cluster_of(made: dict[str, Any], cluster: Cluster) -> Cluster:
    """Return ``cluster`` with the checkpoint's further machines; an older checkpoint may name no machines."""
    known = made.get("machines", [_row(machine) for machine in cluster.machines])
    both = min(len(known), len(cluster.machines))
    same = [row[:_NAMED] for row in known[:both]] == [_row(machine)[:_NAMED] for machine in cluster.machines[:both]]
    if (
        not same
        or made["gpus"] != sum(row[_NAMED - 1] for row in known)
        or any(len(row) == _NAMED for row in known[both:])
    ):
        raise InputError(f"a checkpoint must be of this cluster of {cluster.gpus} GPUs", value=str(made["gpus"]))
    machines = [*cluster.machines, *(Machine(**dict(zip(_MACHINE, row, strict=True))) for row in known[both:])]
    types, racks = (tuple(made.get(name, ())) for name in ("types", "racks"))
    return Cluster.build(
        machines, types=types or cluster.gpu_types, racks=racks or cluster.racks, left=made.get("left", ())
    )


def _kept_lease(made: dict[str, Any]) -> Lease:
    probe = made.get("probe")
    kept: dict[str, Any] = {"state": LeaseState(made["state"]), "probe": None if probe is None else decode(probe)}
    return Lease(**(made | kept))


def _plain(item: Any) -> Any:
    if isinstance(item, Probing):
        return encode(item)
    return int(item) if isinstance(item, LeaseState) else item


def _rates(made: list[list[dict[str, Any]]]) -> dict[int, tuple[Measured, ...]]:
    """Return the measured rates by job row."""
    by_job: dict[int, tuple[Measured, ...]] = {}
    for rates in made:
        seen = tuple(_rate(rate) for rate in rates)
        by_job[seen[0].job] = seen
    return by_job


def _rate(made: dict[str, Any]) -> Measured:
    enums = {"locality": Locality(made["locality"]), "known": Basis(made.get("known", Basis.MEASURED))}
    return Measured(**(made | enums))


def _measured(seen: Measured) -> dict[str, Any]:
    return {field.name: getattr(seen, field.name) for field in dataclasses.fields(seen)}
