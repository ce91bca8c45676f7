"""Resumes suspended and ended apps, after a check of all files that a new attempt of the app master reads."""

import asyncio
from typing import NoReturn

import structlog

from eunomia.contract.events import AppArrived
from eunomia.errors import EunomiaError, InputError
from eunomia.units import NONE, AppId, UserId
from eunomia_appmaster.app.job_checkpoints import CHECKPOINTS_FOLDER, JobCheckpoints
from eunomia_appmaster.app.submission import Submission
from eunomia_appmaster.master.files import read_newest_state
from eunomia_appmaster.master.jobs import Job
from eunomia_appmaster.node.file_rights import reading_as_owner
from eunomia_appmaster.service.app_record import SUSPENDED, App
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

LEAVING_SECONDS = 20.0
"""Longest time in seconds that a resume waits for the app's slots, and for its previous app master to end."""
LOOK_SECONDS = 0.1
SUBMIT_AGAIN = "submit its file again for a new search"


async def resume(service: Service, app: App) -> tuple[int, int]:
    """Resume an app that is suspended, or that failed because its app master ended.

    Returns:
        The number of its app master's next attempt, and the known number of jobs that continue.

    Raises:
        InputError: the app runs, or ended for another reason, or its files are gone; nothing was changed.
    """
    check_end(app)
    unfinished = await asyncio.to_thread(check_folder, service, app)
    if app.state == SUSPENDED:
        return await _try_again(service, app), unfinished
    record = app.taken_up(float(service.driver.clock.now()))
    attempt = await go_on(service, app, record)
    log.info("app.resumed", app=app.name, attempt=attempt, unfinished=unfinished)
    return attempt, unfinished


async def _try_again(service: Service, app: App) -> int:
    """Start the next attempt of a suspended app's master at once; returns the attempt."""
    async with service.driver.lock:
        attempts = [node.ask(app.name, app.attempts) for node in service.nodes if node.name == app.node]
        if app.state == SUSPENDED:
            app.go_on()
            service.driver.put([], [app.note()])
        service.refresh()
    log.info("app.tried_again", app=app.name, attempt=max(attempts, default=1))
    return max(attempts, default=1)


async def go_on(service: Service, app: App, record: App) -> int:
    """Journal that an ended app is resumed, and start the next attempt of its app master; returns the attempt.

    Args:
        service: the arbiter's service.
        app: the app's record at its end.
        record: the app's record once it is resumed.

    Raises:
        InputError: there are too many apps, or its slots or its app master are still leaving; nothing was changed.
    """
    service.apps.check_room()
    await _given_back(service, app)
    arrived = AppArrived(
        app=AppId(app.name), user=UserId(app.user), weight=app.weight, tuner_kind=app.tuner, divides=True, again=True
    )
    decision = await service.driver.fold([arrived], [record.note()])
    faults = [fault.what for fault in decision.faults]
    refused = [what for what in faults if what.startswith("AppArrived") and app.name in what]
    if refused:
        service.driver.put([], [app.note()])
        raise InputError("an app must be accepted by the arbiter", value=refused[0])
    async with service.driver.lock:
        service.sessions.pop(app.name, None)
        service.apps.take_up(record)
        attempts = [node.ask(app.name, app.attempts) for node in service.nodes if node.name == app.node]
        service.refresh()
    return max(attempts, default=1)


def check_end(app: App) -> None:
    """Check that an app's end allows a resumption.

    Raises:
        InputError: the app runs, has finished, was cancelled, or failed by itself.
    """
    if app.lost_master or app.state == SUSPENDED:
        return
    rule = "an app must be suspended, or have failed since its app master ended, to be resumed"
    if not app.over:
        value = "one that is not over: it needs nothing, `eunomia apps` shows how it goes on"
        raise InputError(rule, value=value, place=app.name)
    if app.state == "failed":
        why = app.why or "for no reason that is known"
        raise InputError(rule, value=f"one that failed by itself: {why}; mend that, and {SUBMIT_AGAIN}", place=app.name)
    how = "was cancelled" if app.state == "cancelled" else "has finished"
    more = f", or give it more trials (eunomia submit --more-trials N {app.name})"
    raise InputError(rule, value=f"one that {how}; {SUBMIT_AGAIN}{more}", place=app.name)


def check_folder(service: Service, app: App) -> int:
    """Check that the app's folder has all files that a new attempt reads; returns the number of jobs that continue.

    Raises:
        InputError: a file or a checkpoint is missing.
    """
    try:
        return reading_as_owner(service.settings.apps / app.name, lambda: _check_folder(service, app))
    except InputError:
        raise
    except EunomiaError as error:
        _gone(_found(error), app)


def _found(error: Exception) -> str:
    """Return an error's value with its place, without its rule, for use in another error's message."""
    if not isinstance(error, EunomiaError) or error.value is None:
        return str(error)
    place = error.place or ""
    return error.value if place in error.value else f"{error.value} ({place})"


def _check_folder(service: Service, app: App) -> int:
    folder = service.settings.apps / app.name
    try:
        Submission.read(folder)
        state = read_newest_state(folder)
    except (EunomiaError, OSError) as error:
        _gone(_found(error), app)
    if state is None:
        if app.progress or app.ended_jobs:
            _gone(f"no state of its search (master.json) in {folder}", app)
        return app.trials
    unfinished = [job for job in state.jobs if not job.state.over]
    lost = [job for job in unfinished if not _has_checkpoints(service, app, job)]
    if lost:
        named = ", ".join(f"{app.name}/{job.number}" for job in lost[:3])
        more = "" if len(lost) <= 3 else f" and {len(lost) - 3} more"
        _gone(f"no checkpoints of {named}{more} in {folder}", app)
    return len(unfinished)


def _has_checkpoints(service: Service, app: App, job: Job) -> bool:
    """Return whether a job has a checkpoint to continue from; a job that never started needs none."""
    store = JobCheckpoints(service.settings.apps / app.name / str(job.number) / CHECKPOINTS_FOLDER)
    if job.saved_step:
        return bool(store.steps())
    return job.incarnation == 0 or store.folder.is_dir()  # the app master makes the folder before it starts a gang


def _gone(value: str, app: App) -> NoReturn:
    rule = f"what an app goes on from must be there (put it back from a backup, or {SUBMIT_AGAIN})"
    raise InputError(rule, value=value, place=app.name)


async def _given_back(service: Service, app: App) -> None:
    """Wait until the app's previous containers and its app master have ended.

    Raises:
        InputError: some of its slots, or its app master, have not been given back in time.
    """
    deadline = asyncio.get_running_loop().time() + LEAVING_SECONDS
    while service.view.app_row(AppId(app.name)) != NONE or service.has_master(app):
        if asyncio.get_running_loop().time() > deadline:
            rule = "an app must have given its slots back to go on; try again in a moment"
            raise InputError(rule, value="slots that its workers are still leaving", place=app.name)
        await asyncio.sleep(LOOK_SECONDS)
