"""Reads the apps of a run's folder from its journal, without an arbiter."""

from pathlib import Path

from eunomia_appmaster.app.outputs import STDERR, newest_output
from eunomia_appmaster.explaining.job_events import CANCELLED
from eunomia_appmaster.protocol import arbiter_pb2 as pb


def app_of_run(run: Path, name: str) -> pb.App | None:
    """Return an app from the journal of a run's folder, as the arbiter would list it; None: no app has this name.

    Raises:
        InputError: there is no journal.
    """
    from eunomia.journal.journal import read_journal
    from eunomia_appmaster.explaining.replay import JOURNAL
    from eunomia_appmaster.service.app_record import NOTE, read_app

    with read_journal(run / JOURNAL) as journal:
        values = journal.note_of(NOTE, name)
    app = None if values is None else read_app(name, values)
    if app is None:
        return None
    folder = (run / "apps" / name).resolve()
    shown = pb.App(
        app=name,
        user=app.user,
        state=app.state if app.over else "unfinished",
        why=app.why,
        failed=app.failed,
        trials=app.trials,
        ended=len(app.ended_jobs),
        standing=app.standing_message(),
        folder=str(folder),
        ended_at_unix=app.ended_at_unix,
        failures=[
            pb.FailedJob(job=job, why=why, log=str(newest_output(folder / job.rpartition("/")[2], STDERR)))
            for job, why in app.failures.items()
        ],
    )
    if app.ended_at is not None:
        shown.jct_seconds = app.lived_seconds(app.ended_at)
    return shown


def cancelled_jobs(run: Path, name: str) -> dict[str, float]:
    """Return the Unix time of the cancellation, by job, of the jobs that an app had when it was cancelled.

    Empty: the app was not cancelled, or the run's folder has no journal.
    """
    from eunomia.journal.journal import read_journal
    from eunomia_appmaster.explaining.replay import JOURNAL
    from eunomia_appmaster.service.app_record import NOTE, read_app

    if not (run / JOURNAL).exists():
        return {}
    with read_journal(run / JOURNAL) as journal:
        values = journal.note_of(NOTE, name)
    app = None if values is None else read_app(name, values)
    at = None if app is None else app.ended_at_unix
    if app is None or at is None:
        return {}
    return {job: at for job, state in app.ended_jobs.items() if state == CANCELLED}


def apps_of_run(run: Path) -> list[str]:
    """Return the names of all apps in the journal of a run's folder.

    Raises:
        InputError: there is no journal.
    """
    from eunomia.journal.journal import read_journal
    from eunomia_appmaster.explaining.replay import JOURNAL
    from eunomia_appmaster.service.app_record import NOTE

    with read_journal(run / JOURNAL) as journal:
        return list(journal.notes(NOTE))
