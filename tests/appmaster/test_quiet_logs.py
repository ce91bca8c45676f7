"""Logs say what is new: refusals that repeat once a minute, and a caller that has gone is no fault."""

import asyncio
from typing import Any

import grpc
import pytest
import structlog
from tests.appmaster.test_away_nodes import LaterSystem

from eunomia_appmaster.launcher.errors import LeaseEndedError, SlotBusyError
from eunomia_appmaster.launcher.refusal_log import AGAIN_SECONDS, RefusalLog
from eunomia_appmaster.service.guard import Guard


def test_refusals_after_the_end_of_a_lease_are_logged_once_a_minute() -> None:
    system = LaterSystem()
    refusals = RefusalLog(system=system)
    with structlog.testing.capture_logs() as logs:
        for _ in range(78):
            refusals.log(LeaseEndedError("a node must hold its slots by a lease"))
        refusals.log(SlotBusyError("a slot must be free"))
        refusals.log(SlotBusyError("a slot must be free"))
        system.seconds += AGAIN_SECONDS
        refusals.log(LeaseEndedError("a node must hold its slots by a lease"))
    assert [one.get("times_before") for one in logs] == [0, None, None, 77]


def test_a_call_whose_client_disconnected_is_not_logged_as_a_fault() -> None:
    class Handler:
        @staticmethod
        def request_deserializer(content: bytes) -> bytes:
            return content

        @staticmethod
        async def unary_unary(request: bytes, context: object) -> bytes:
            raise grpc.aio.InternalError("Failed grpc_call_start_batch")  # what gRPC raises where it cannot send

    guard = Guard(tokens=object())  # type: ignore[arg-type]  # no token is looked at
    read: Any = guard.reader("/eunomia.arbiter.ClientProtocol/List", Handler)
    with structlog.testing.capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        asyncio.run(read(b"", object()))
    assert [(one["event"], one["log_level"]) for one in logs] == [("caller.gone", "info")]
    assert guard.faults == 0
