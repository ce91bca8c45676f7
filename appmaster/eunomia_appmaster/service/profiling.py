"""Replaces and drops rates by kind of job on an operator's order."""

from eunomia.arbiter import ClusterView
from eunomia.contract.events import KindProfiled
from eunomia.errors import InputError
from eunomia.model.kind_profiles import KnownRate
from eunomia_appmaster.protocol import arbiter_pb2 as pb
from eunomia_appmaster.service.kind_profile_files import parse_profile
from eunomia_appmaster.service.service import Service

FILE = "the profile"


async def set_profile(service: Service, request: pb.SetProfileRequest) -> pb.SetProfileResponse:
    """Carry out an order about a kind's rates, and wait until it is journaled.

    Raises:
        InputError: the file lacks rates, is for another cluster, or the kind is unknown; nothing was changed.
    """
    async with service.driver.lock:
        view = service.view
        kind, rates = _checked(view, request)
        before = len(rates_of(view, kind))
    await service.driver.fold([KindProfiled(kind=kind, rates=rates)])
    return pb.SetProfileResponse(kind=kind, points=len(rates), before=before)


def rates_of(view: ClusterView, kind: str) -> tuple[KnownRate, ...]:
    """Return the known rates of a kind of job."""
    return view.reports.profiles.get(view.names.kinds.get(kind, -1), ())


def _checked(view: ClusterView, request: pb.SetProfileRequest) -> tuple[str, tuple[KnownRate, ...]]:
    if request.WhichOneof("change") == "file":
        kind, rates = parse_profile(request.file, place=FILE)
        KindProfiled(kind=kind, rates=rates).check(view.cluster)
        return kind, rates
    if not request.drop:
        raise InputError("a change must be a file or a kind to drop", value="none", place="SetProfileRequest")
    if not rates_of(view, request.drop):
        known = sorted(name for name, number in view.names.kinds.items() if number in view.reports.profiles)
        rule = f"a kind must be one with known rates ({', '.join(known) or 'there is none yet'})"
        raise InputError(rule, value=f'"{request.drop}"', place="profiles")
    return request.drop, ()
