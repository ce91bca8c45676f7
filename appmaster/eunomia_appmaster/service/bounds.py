"""Bounds of requests: characters, items and numbers of every field, checked before a request is used.

The table has the fields that differ from the defaults; all other fields have the default bounds. Bid tables are checked
as a whole against their offer (``eunomia.contract.bundles``), so only their lengths are bounded here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from eunomia.errors import InputError
from eunomia.model.shapes import value
from eunomia_appmaster.node.local_machine import MOST_SLOTS
from eunomia_appmaster.protocol.join_text import LONGEST_DAYS

MAX_REQUEST_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of a message in bytes; gRPC answers a larger one with RESOURCE_EXHAUSTED before it is parsed."""
MOST_JOBS: Final = 10_000
"""Maximum number of jobs of an app, including ended ones; also the maximum number of trials of a search."""
MOST_BID_ROWS: Final = 256
MOST_BID_PARTS: Final = 32
"""Maximum number of parts (numbers of GPUs on machines of one class) in one row of a bid's table."""
MOST_SECONDS: Final = 1e9
LEAST_BATCH: Final = 1e-9
MOST_BATCH: Final = 1e15


@value
class Bound:
    """The bounds of one field: characters of a string, items of a list, or the range of a number."""

    letters: int = 500
    items: int = 1_000
    least: float = 0.0
    most: float = 1e15
    any_number: bool = False
    """Whether any number is accepted here, because the code that reads the number checks it."""


_DEFAULT: Final = Bound()
_ANY: Final = Bound(any_number=True, items=(MOST_BID_PARTS + 1) * MOST_BID_ROWS)
_JOBS: Final = Bound(items=MOST_JOBS)
_SECONDS: Final = Bound(most=MOST_SECONDS)
_TOKEN_LIFE: Final = Bound(most=100 * 366 * 86400.0)
_GPUS: Final = Bound(most=MOST_SLOTS, items=MOST_SLOTS)
_TEXT: Final = Bound(letters=10_000)

BOUNDS: Final[Mapping[str, Bound]] = {
    "RegisterNodeRequest.apps_folder": Bound(letters=4096),
    "RegisterNodeRequest.storage_fault": Bound(letters=4096),
    "RegisterNodeRequest.rack": Bound(letters=100),
    "AllocateRequest.jobs_added": _JOBS,
    "AllocateRequest.jobs_finished": _JOBS,
    "AllocateRequest.jobs_failed": _JOBS,
    "AllocateRequest.jobs_paused": _JOBS,
    "AllocateRequest.jobs_resumed": _JOBS,
    "AllocateRequest.jobs_progress": _JOBS,
    "AllocateRequest.adaptations": _JOBS,
    "AllocateRequest.rates": _JOBS,
    "AllocateRequest.progress": Bound(any_number=True),
    "AllocateRequest.response_id": Bound(most=2**62),
    "JobAdded.least": Bound(least=1, most=MOST_SLOTS),
    "JobAdded.most": Bound(least=1, most=MOST_SLOTS),
    "JobAdded.batch_size": Bound(least=LEAST_BATCH, most=MOST_BATCH),
    "JobAdded.epochs": Bound(least=1e-9),
    "JobAdded.samples_per_epoch": Bound(least=1e-9),
    "JobAdded.seconds_per_iteration": Bound(least=1e-9, most=MOST_SECONDS),
    "JobFailed.again_in_seconds": _SECONDS,
    "JobFailed.why": _TEXT,
    "MeasuredRate.gpus": Bound(least=1, most=MOST_SLOTS),
    "MeasuredRate.batch_size": Bound(least=LEAST_BATCH, most=MOST_BATCH),
    "MeasuredRate.cpus": Bound(least=1e-9),
    "MeasuredRate.memory_gib": Bound(least=1e-9),
    "Adaptation.batch_size": Bound(least=LEAST_BATCH, most=MOST_BATCH),
    "Adaptation.seconds_ago": _SECONDS,
    "JobResized.seconds_ago": _SECONDS,
    "JobResized.join_seconds": _SECONDS,
    "JobResized.pause_seconds": _SECONDS,
    "Division.jobs": _JOBS,
    "JobSlots.gpus": _GPUS,
    "Release.gpus": _GPUS,
    "Phase.jobs": _JOBS,
    "JobForecast.least": Bound(any_number=True),
    "JobForecast.most": Bound(any_number=True),
    "JobForecast.iterations_left": Bound(any_number=True),
    "JobForecast.seconds_per_iteration": Bound(any_number=True),
    "JobForecast.count": Bound(most=MOST_JOBS),
    "JobForecast.slowdown": Bound(any_number=True, items=4),
    "Forecast.total_gpu_seconds": Bound(any_number=True),
    "Forecast.most": Bound(most=MOST_SLOTS),
    "Bid.offer": Bound(most=2**62),
    "Bid.encoded": Bound(letters=1_000_000),
    **{
        f"BundleTable.{name}": _ANY for name in ("now", "rho", "part_start", "part_class", "part_gpus", "part_machines")
    },
    **{
        f"MachineClasses.{name}": Bound(any_number=True, items=MOST_SLOTS)
        for name in ("start", "machine", "free", "gpu_type", "rack")
    },
    "Standing.best": Bound(any_number=True),
    "Standing.best_params_json": _TEXT,
    "Standing.best_checkpoint": Bound(letters=4096),
    "FinishApplicationMasterRequest.diagnostics": _TEXT,
    "MoreTrialsRequest.trials": Bound(least=1, most=MOST_JOBS),
    "SetProfileRequest.file": Bound(letters=1_000_000),
    "SubmitRequest.app_file": Bound(letters=1_000_000),
    "SubmitRequest.folder": Bound(letters=4096),
    "SubmitRequest.env": Bound(items=16, letters=10_000),
    "JoinNodeRequest.signing_request": _TEXT,
    "RegisterNodeRequest.slots": Bound(items=MOST_SLOTS),
    "RegisterNodeRequest.slot_states": Bound(items=MOST_SLOTS),
    "RegisterNodeRequest.containers": _JOBS,
    "RegisterNodeRequest.app_masters": _JOBS,
    "NodeHeartbeatRequest.slot_states": Bound(items=MOST_SLOTS),
    "NodeHeartbeatRequest.containers": _JOBS,
    "NodeHeartbeatRequest.app_masters": _JOBS,
    "ReportContainersRequest.slot_states": Bound(items=MOST_SLOTS),
    "ReportContainersRequest.containers": _JOBS,
    "ReportContainersRequest.app_masters": _JOBS,
    "ContainerStatus.announce_json": _TEXT,
    "Announcement.regime_json": _TEXT,
    "ContainerStatus.diagnostics": _TEXT,
    "AppMasterStatus.diagnostics": _TEXT,
    **{f"UserLimits.{name}": Bound(any_number=True) for name in ("weight", "apps", "jobs", "gpu_hours", "disk_bytes")},
    "DrainNodeRequest.within_seconds": _SECONDS,
    "AddUserRequest.ends_in_seconds": _TOKEN_LIFE,
    "NewTokenRequest.ends_in_seconds": _TOKEN_LIFE,
    "MakeJoinTokenRequest.ends_in_seconds": Bound(least=1.0, most=LONGEST_DAYS * 86400.0),
    "Exit.code": Bound(least=-(2.0**31)),
    "Exit.signal": Bound(least=-(2.0**31)),
}
"""Bounds by ``Message.field``, for fields that differ from the defaults of ``Bound``."""

Check = Callable[[Any, str], None]


def check(message: Message, place: str = "") -> None:
    """Check a request against its bounds.

    Args:
        message: the parsed request.
        place: prefix of the field's name in errors.

    Raises:
        InputError: the first field that breaks a rule; the whole message must be ignored.
    """
    checks, needed = _checks(message.DESCRIPTOR)
    for field, content in message.ListFields():
        checks[field.name](content, f"{place}{field.name}")
    for name in needed:  # ListFields omits zeros
        checks[name](getattr(message, name), f"{place}{name}")


@lru_cache(maxsize=256)
def _checks(kind: Descriptor) -> tuple[Mapping[str, Check], Sequence[str]]:
    """Return the check of each field, and the fields that are required."""
    needed = [
        field.name
        for field in kind.fields
        if not field.has_presence and not field.is_repeated and _bound(kind.name, field).least > 0.0
    ]
    return {field.name: _check_of(kind.name, field) for field in kind.fields}, needed


def _bound(message: str, field: FieldDescriptor) -> Bound:
    return BOUNDS.get(f"{message}.{field.name}", _DEFAULT)


def _check_of(message: str, field: FieldDescriptor) -> Check:
    bound = _bound(message, field)
    if not field.is_repeated:
        return _single(field, bound)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return lambda content, place: _check_map(content, bound, place)
    if field.cpp_type in _NUMBERS:
        return lambda content, place: _check_numbers(content, bound, place)
    item = _single(field, bound)

    def check_items(content: Any, place: str) -> None:
        _check_items(len(content), bound, place)
        for index, one in enumerate(content):
            item(one, f"{place}[{index}]")

    return check_items


def _single(field: FieldDescriptor, bound: Bound) -> Check:
    if field.message_type is not None:
        return lambda content, place: check(content, f"{place}.")
    if field.enum_type is not None:
        known = field.enum_type
        return lambda content, place: _check_enum(content, known, place)
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return lambda content, place: _check_letters(content, bound, place)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return lambda content, place: None
    return lambda content, place: _check_numbers((content,), bound, place)


_NUMBERS: Final = frozenset(
    {
        FieldDescriptor.CPPTYPE_INT32,
        FieldDescriptor.CPPTYPE_INT64,
        FieldDescriptor.CPPTYPE_UINT32,
        FieldDescriptor.CPPTYPE_UINT64,
        FieldDescriptor.CPPTYPE_DOUBLE,
        FieldDescriptor.CPPTYPE_FLOAT,
    }
)


def _check_numbers(content: Any, bound: Bound, place: str) -> None:
    _check_items(len(content), bound, place)
    if bound.any_number:
        return
    for number in content:
        if not bound.least <= number <= bound.most:  # False for NaN, too
            rule = f"a number must be from {bound.least:g} to {bound.most:g}"
            raise InputError(rule, value=repr(number), place=place)


def _check_items(count: int, bound: Bound, place: str) -> None:
    if count > bound.items:
        raise InputError(f"a list must have at most {bound.items} items", value=str(count), place=place)


def _check_letters(content: "str | bytes", bound: Bound, place: str) -> None:
    if len(content) > bound.letters:
        raise InputError(f"a text must have at most {bound.letters} letters", value=str(len(content)), place=place)


def _check_map(content: Mapping[str, str], bound: Bound, place: str) -> None:
    _check_items(len(content), bound, place)
    for key, item in content.items():
        _check_letters(key, _DEFAULT, place)
        _check_letters(item, bound, place)


def _check_enum(content: int, known: EnumDescriptor, place: str) -> None:
    if content not in known.values_by_number:
        names = ", ".join(known.values_by_name)
        raise InputError(f"{known.name} must be one of {names}", value=str(content), place=place)
