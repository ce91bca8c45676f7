"""Every event and decision comes back exactly as it was."""

import dataclasses
import json
import math
import typing
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eunomia.contract.bundles import Bundle, ByBundle, MachineClasses, Part
from eunomia.contract.codec import decode, encode
from eunomia.contract.decisions import (
    Decision,
    Fault,
    MemoChange,
    RecordTable,
    Renewal,
    Transition,
    TransitionKind,
    Waiting,
)
from eunomia.contract.event_order import ORDER
from eunomia.contract.events import (
    AppArrived,
    BidReceived,
    Event,
    ForecastReported,
    JobAdded,
    RateMeasured,
    SingleJobArrived,
    SingleJobEnded,
)
from eunomia.contract.offers import Offer
from eunomia.contract.valuations import BySize, Scores
from eunomia.contract.verdicts import Reason
from eunomia.errors import EunomiaError, InputError
from eunomia.model.forecasts import Forecast, JobForecast, Phase
from eunomia.units import Cause, Locality, Scope, Stage
from strength import examples

FLOATS = st.floats(allow_nan=True, allow_infinity=True)
IDS = st.text(max_size=12)


def same(one: Any, other: Any) -> bool:
    """Equal in every bit: types, NaN, the sign of zero, dtypes."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return repr(one) == repr(other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and same(one.tolist(), other.tolist())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if dataclasses.is_dataclass(one) and not isinstance(one, Enum):
        return all(same(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one))
    return bool(one == other)


def there_and_back(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


def assert_round_trip(value: Any) -> None:
    assert same(there_and_back(value), value)


def table() -> ByBundle:
    classes = MachineClasses.of(machine=[0, 1, 2], free=[4, 4, 2], gpu_type=[0, 0, 1], rack=[0, 0, 1])
    return ByBundle.of(classes, [2.5], [[Bundle(1.25, (Part(0, 4, 2),)), Bundle(0.5, (Part(0, 1, 1), Part(1, 2, 1)))]])


JOBS = st.builds(
    JobForecast,
    iterations_left=FLOATS,
    seconds_per_iteration=FLOATS,
    slowdown=st.none() | st.tuples(FLOATS, FLOATS, FLOATS, FLOATS),
)
FORECASTS = st.builds(
    Forecast,
    phases=st.lists(st.builds(Phase, jobs=st.lists(JOBS, max_size=3).map(tuple)), max_size=3).map(tuple),
    total_gpu_seconds=FLOATS,
    most=st.integers(1, 64),
)


def field_strategy(hint: Any) -> st.SearchStrategy[Any]:
    if hint is Forecast:
        return FORECASTS
    if typing.get_origin(hint) is tuple and typing.get_args(hint)[1:] == (Ellipsis,):
        return st.lists(field_strategy(typing.get_args(hint)[0]), max_size=4).map(tuple)
    if type(None) in typing.get_args(hint):
        return st.one_of(*(st.none() if part is type(None) else field_strategy(part) for part in typing.get_args(hint)))
    base = getattr(hint, "__supertype__", hint)
    if isinstance(base, type) and issubclass(base, Enum):
        return st.sampled_from(list(base))
    if dataclasses.is_dataclass(base):
        return any_event(base)
    return {str: IDS, int: st.integers(), float: FLOATS, bool: st.booleans()}[base]


def any_event(kind: type) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{f.name: field_strategy(hints[f.name]) for f in dataclasses.fields(kind)})


PLAIN_EVENTS = [kind for kind in ORDER if kind is not BidReceived]


def test_every_kind_of_event_is_covered_by_the_round_trip_tests() -> None:
    compound = {SingleJobArrived, SingleJobEnded}  # the journal keeps the events that these stand for
    assert set(typing.get_args(Event)) == {*ORDER} | compound
    assert_round_trip(BidReceived(app="a", offer=7, form=table()))


@pytest.mark.parametrize("kind", PLAIN_EVENTS, ids=lambda kind: kind.__name__)
def test_events_are_decoded_exactly_as_they_were_encoded(kind: type) -> None:
    @settings(max_examples=examples(30), deadline=None)
    @given(any_event(kind))
    def check(event: Any) -> None:
        assert_round_trip(event)

    check()


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.one_of([any_event(kind) for kind in PLAIN_EVENTS]), max_size=5))
def test_lists_of_events_are_decoded_exactly_as_they_were_encoded(events: list[Any]) -> None:
    assert_round_trip(events)


def offer() -> Offer:
    return Offer(
        id=3,
        scope=Scope.FREE,
        made_at=12.5,
        gpus=np.array([0, 1, 7]),
        apps=np.array([2, 0], dtype=np.int32),
        candidates=np.array([4], dtype=np.int32),
        free_gpus=3,
        closes_at=14.5,
        lease=math.inf,
        capacity=np.array([4, 4]),
        contention=np.array([1.5, math.nan, -0.0]),
        named=np.array([1]),
    )


def transition(**more: Any) -> Transition:
    fields: dict[str, Any] = {
        "kind": TransitionKind.START,
        "lease": 1,
        "epoch": 9,
        "app": "a",
        "job": "a/1",
        "gpus": np.array([1, 2]),
        "cpus": np.array([0.5, 0.5]),
        "memory_gib": np.array([1.9, math.nan]),
        "ends_at": math.inf,
        "protected_until": -math.inf,
        "leaving": np.empty(0, np.int64),
        "fence": 8,
        "after": np.array([2]),
    }
    return Transition(**(fields | more))


def decision() -> Decision:
    return Decision(
        now=12.5,
        round=4,
        version=17,
        causes=frozenset({Cause.ARRIVED, Cause.FREED}),
        offers=(offer(),),
        closed=2,
        orders=(transition(kind=TransitionKind.SUSPEND, job=None, deadline=20.25),),
        transitions=(transition(),),
        renewals=(Renewal(lease=1, ends_at=30.0, protected_until=-math.inf),),
        waiting=(
            Waiting(job="a/2", reason=Reason.OUTBID, stage=Stage.ALLOCATION, plugin="themis"),
            Waiting(job="a/3", reason=None),
        ),
        starts_at=(("a/2", 18.0),),
        records=(RecordTable(plugin="themis", table="bids", columns={"app": ["a", None], "rho": [1.5, math.nan]}),),
        faults=(Fault(plugin="p", stage=None, what="no"),),
        memos=(
            MemoChange(plugin="p", stage=Stage.VALUATION, version=2, data=b"\x00\xff"),
            MemoChange(plugin="q", stage=Stage.REFINE, version=0, data=None),
        ),
        serving="themis",
        wake_at=14.5,
        stage_wake_at=math.inf,
    )


def test_a_decision_is_decoded_exactly_as_it_was_encoded() -> None:
    assert_round_trip(decision())
    assert_round_trip(Decision(now=0.0, round=0, version=0))


@pytest.mark.parametrize(
    "value",
    [
        table(),
        Scores(score=np.array([[1.0, math.inf], [-0.0, math.nan]])),
        BySize(claim=np.array([0], dtype=np.int32), gpus=np.array([2]), value=np.array([0.5], dtype=np.float64)),
        np.array(["a", None], dtype=object),
        np.array([True, False]),
        np.empty((0, 3), np.int32),
        {"a": (1, 2.0, True), 3: frozenset({Cause.WAKE}), Stage.REFINE: None},
        [Locality.RACK, Reason.OUTBID, 2, 2.0],
        {"is": "Started", "tuple": 1},
        10**30,
    ],
    ids=lambda value: type(value).__name__,
)
def test_tables_arrays_and_nested_values_are_decoded_exactly_as_they_were_encoded(value: Any) -> None:
    assert_round_trip(value)


def test_a_field_that_equals_its_default_is_not_encoded() -> None:
    assert encode(AppArrived(app="a", user="ana")) == {"is": "AppArrived", "app": "a", "user": "ana"}
    assert encode(JobAdded(job="a/1", app="a", most=4)) == {"is": "JobAdded", "job": "a/1", "app": "a", "most": 4}


def test_numpy_scalars_are_encoded_as_plain_numbers() -> None:
    event = RateMeasured(job="a/1", gpus=np.int64(2), locality=Locality.RACK, rate=np.float64(1.5), gpu_type="cpu")
    assert encode(event)["gpus"] == 2
    assert there_and_back(event) == RateMeasured(job="a/1", gpus=2, locality=Locality.RACK, rate=1.5, gpu_type="cpu")


class Stranger:
    pass


@dataclasses.dataclass
class Started:  # a stranger of the same name as an event
    lease: int


@pytest.mark.parametrize("value", [Stranger(), {1, 2}, 1j, Started(3), np.array([1j]), np.array(["x"])])
def test_an_unknown_type_is_refused(value: Any) -> None:
    with pytest.raises(EunomiaError, match="an encoded"):
        encode(ForecastReported(app="a", forecast=value))


@pytest.mark.parametrize(
    "made",
    [
        {"is": "Popen", "args": "x"},
        {"is": "Stage"},
        {"is": "Started", "wrong": 1},
        {"is": "Started"},
        {"enum": "Stage.NOTHING"},
        {"enum": "Started.lease"},
        {"array": "<U3", "of": ["abc"]},
        {"array": "<i8", "of": ["abc"]},
        {"array": "<i8"},
        {"bytes": "!"},
        {"float": "many"},
        {"dict": [[1]]},
        {"what": 1},
        {},
    ],
    ids=str,
)
def test_a_value_that_the_encoder_cannot_have_written_is_refused(made: Any) -> None:
    with pytest.raises(InputError):
        decode(made)
