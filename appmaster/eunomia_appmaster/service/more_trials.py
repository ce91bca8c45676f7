"""Adds trials to an app that has ended: the search continues where it ended."""

import asyncio
import dataclasses
from collections.abc import Sequence

import structlog

from eunomia.errors import EunomiaError, InputError
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.master.files import read_newest_state
from eunomia_appmaster.node.file_rights import as_owner, reading_as_owner
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.resuming import check_folder, go_on
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()


async def add_trials(service: Service, app: App, trials: int, request_id: str) -> tuple[App, int, int]:
    """Add trials to an app that has ended, and let its search continue.

    Returns:
        The app's new record, the number of the attempt that starts now, and the known number of jobs that continue.

    Raises:
        InputError: the app has not ended, is not a search, or its files are gone; nothing was changed.
    """
    if not app.over:
        rule = "an app must have ended to get more trials (eunomia submit --wait stays until then)"
        raise InputError(rule, value="one that is not over", place=app.name)
    unfinished = await asyncio.to_thread(check_folder, service, app)
    groups = await asyncio.to_thread(_checked, service, app, trials)
    record = dataclasses.replace(
        app.taken_up(float(service.driver.clock.now())),
        trials=app.trials + trials,
        more_trials=groups,
        more_request=request_id,
        progress=None,
        rho=None,
    )
    attempt = await go_on(service, app, record)
    log.info("app.more_trials", app=app.name, trials=trials, all=record.trials, attempt=attempt, unfinished=unfinished)
    return record, attempt, unfinished


def _checked(service: Service, app: App, trials: int) -> list[int]:
    """Return the sizes of all added groups of trials, including the new one.

    Raises:
        InputError: the app's files cannot be read, or the app file does not allow more trials.
    """
    from eunomia_appmaster.app.app_file import AppFile

    folder = service.settings.apps / app.name
    try:
        state, submission = reading_as_owner(folder, lambda: (read_newest_state(folder), Submission.read(folder)))
    except (EunomiaError, OSError) as error:
        raise InputError("what an app goes on from must be readable", value=str(error), place=app.name) from error
    groups = [*_known(app.more_trials, () if state is None else state.growth.groups), trials]
    with as_owner(folder):
        AppFile.parse(
            submission.app_file,
            place=submission.file_name,
            folder=submission.folder,
            env=submission.env or None,
            user=submission.user or None,
            more_trials=groups,
        )
    return groups


def _known(journaled: Sequence[int], of_file: Sequence[int]) -> Sequence[int]:
    """Return the app's groups of trials: the journal's, unless an older backup of the journal was restored."""
    return journaled if tuple(journaled[: len(of_file)]) == tuple(of_file) else of_file
