"""The rule ``serve --clean-older-than``: removes folders of apps that ended long ago, as ``eunomia clean`` does."""

import asyncio
from typing import Final

import structlog

from eunomia.errors import EunomiaError
from eunomia_appmaster.app.cleaning import bytes_of, remove_all_but_best, remove_app
from eunomia_appmaster.service.app_record import App
from eunomia_appmaster.service.service import Service

log = structlog.get_logger()

PAUSE_SECONDS: Final = 600.0
"""Seconds between two searches for apps to clean; the first one is at once."""


async def clean_by_rule(service: Service, pause_seconds: float = PAUSE_SECONDS) -> None:
    """Remove folders of apps that ended long ago, until cancelled; returns at once without a rule."""
    if service.settings.clean_after is None:
        return
    await service.ready.wait()
    while True:
        await clean_once(service, float(service.settings.clean_after))
        await asyncio.sleep(pause_seconds)


async def clean_once(service: Service, older_seconds: float) -> None:
    """Remove the folders of apps that ended more than ``older_seconds`` ago; failures are logged."""
    before = float(service.driver.clock.now()) - older_seconds
    for name in await asyncio.to_thread(_due, service, before):
        app = service.apps.get(name)
        if app is None or not app.over or service.has_master(app):  # resumed since the list was made
            continue
        try:
            await asyncio.to_thread(_clean, service, app)
        except EunomiaError as error:
            log.warning("app.not_cleaned", app=name, why=str(error))


def _due(service: Service, before: float) -> list[str]:
    """Return the names of apps with folders that ended before a time; called in a thread, as it reads the journal."""
    folders = service.settings.apps
    names = [path.name for path in folders.glob("*") if path.is_dir() and not path.is_symlink()]
    return [name for name in names if (app := service.apps.get(name)) and app.over and (app.ended_at or 0.0) <= before]


def _clean(service: Service, app: App) -> None:
    folders = service.settings.apps
    taken = bytes_of(folders / app.name)
    if service.settings.clean_keep_best:
        remove_all_but_best(folders, app.name, str(app.standing.get("best_job") or ""))
        left = bytes_of(folders / app.name)
    else:
        remove_app(folders, app.name)
        left = 0
    if left < taken:
        log.info("app.cleaned", app=app.name, bytes=taken - left)
