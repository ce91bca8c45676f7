"""Converts the whole state to bytes and back, for the checkpoints in a journal."""

import dataclasses
import json
from base64 import b64decode, b64encode
from typing import Any

from eunomia.contract.codec import decode, encode
from eunomia.contract.memos import Memo, read_memo
from eunomia.contract.snapshot import Measured
from eunomia.errors import InputError
from eunomia.model.cluster import Cluster
from eunomia.model.leases import Lease, LeaseState, Probing
from eunomia.store.facts import Reported
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
"""Attributes of ``Names`` by their names in a checkpoint."""


def save_state(state: State) -> bytes:
    """Encode the state as bytes; each memo is written by its plugin."""
    made: dict[str, Any] = {
        "format": FORMAT,
        "gpus": state.cluster.gpus,
        "machines": [[one.name, one.gpu_type, one.gpus] for one in state.cluster.machines],
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
        "leases": [_lease(lease) for lease in state.leases.values()],
        "leaving": [[lease, sorted(gpus)] for lease, gpus in state.owners.leaving.items()],
        "starts_at": [[job, time] for job, time in state.reports.starts_at.items()],
        "held": state.reports.held,
        "memos": [
            [plugin, stage.value, memo.version, b64encode(memo.to_bytes()).decode()]
            for (plugin, stage), memo in state.memos.items()
        ],
        "open": None
        if state.open is None
        else [
            encode(state.open.offer),
            [[app, encode(form)] for app, form in state.open.bids.items()],
            list(state.open.asked.items()),
        ],
    }
    return json.dumps(made).encode()


def load_state(
    data: bytes, cluster: Cluster, memo_types: dict[tuple[str, Stage], type[Memo]], *, plain: bool = False
) -> State:
    """Decode a state from its bytes; machines of the cluster behind those of the checkpoint are new, and free.

    A memo whose plugin is not loaded is dropped: its stage starts without a memo.

    Raises:
        InputError: another format, or machines of the checkpoint that are not the cluster's first ones.
    """
    made = json.loads(data)
    if made["format"] != FORMAT:
        raise InputError(f"a checkpoint must be of format {FORMAT}", value=str(made["format"]))
    known = made.get("machines")  # None: an older checkpoint, which is of the whole cluster
    first = cluster.machines if known is None else cluster.machines[: len(known)]
    same = known is None or known == [[one.name, one.gpu_type, one.gpus] for one in first]
    if not same or made["gpus"] != sum(one.gpus for one in first):
        raise InputError(f"a checkpoint must be of this cluster of {cluster.gpus} GPUs", value=str(made["gpus"]))
    state = State(cluster, plain=plain)
    restore_tables(state, made["tables"])
    state.now = Seconds(made["scalars"]["now"])
    for name in SCALARS:
        setattr(state.counters, name, made["scalars"][name])
    for name, own in MAPS.items():
        setattr(state.names, own, dict(made["maps"][name]))
    state.counters.version = Version(state.counters.version)
    state.counters.causes = frozenset(map(Cause, made["causes"]))
    state.reports = Reported(
        forecasts={int(row): decode(forecast) for row, forecast in made["forecasts"]},
        measured=_rates(made["measured"]),
        measured_at_others=_rates(made.get("measured_at_others", ())),
        profiles={int(kind): tuple(map(decode, rates)) for kind, rates in made.get("profiles", ())},
        adaptations={int(row): decode(kept) for row, kept in made.get("adaptations", ())},
        coming_regimes={int(row): tuple(map(decode, kept)) for row, kept in made.get("coming_regimes", ())},
        starts_at={int(job): float(time) for job, time in made["starts_at"]},
        held=dict(made.get("held", {})),
    )
    for lease in made["leases"]:
        kept = _kept_lease(lease)
        state.leases[kept.id] = kept
        if kept.probe is not None:
            state.owners.probing[kept.id] = kept.probe.until
    state.owners.leaving = {int(lease): set(gpus) for lease, gpus in made["leaving"]}
    for plugin, stage, version, memo in made["memos"]:
        kind = memo_types.get((plugin, Stage(stage)))
        read = None if kind is None else read_memo(kind, version, b64decode(memo))
        if read is not None:
            state.memos[plugin, Stage(stage)] = read
    if made["open"] is not None:
        offer, bids, asked = made["open"]
        state.open = OpenOffer(
            offer=decode(offer),
            bids={int(app): decode(form) for app, form in bids},
            asked={int(row): AppId(app) for row, app in asked},
        )
    state.rebuild()
    return state


def _lease(lease: Lease) -> dict[str, Any]:
    return {field.name: _plain(getattr(lease, field.name)) for field in dataclasses.fields(lease)}


def _kept_lease(made: dict[str, Any]) -> Lease:
    probe = made.get("probe")
    kept: dict[str, Any] = {
        "state": LeaseState(made["state"]),
        "probe": None if probe is None else decode(probe),
    }
    return Lease(**(made | kept))


def _plain(item: Any) -> Any:
    if isinstance(item, Probing):
        return encode(item)
    return int(item) if isinstance(item, LeaseState) else item


def _rates(made: list[list[dict[str, Any]]]) -> dict[int, tuple[Measured, ...]]:
    """Measured rates by job row."""
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
