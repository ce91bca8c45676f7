"""A backend of Syne Tune whose trials are the trials of one app of Eunomia.

Syne Tune decides which trials run and when they stop; the app master manages their slots, checkpoints and retries. A
search thus continues as its slots change: a trial that must leave its slot is suspended at a checkpoint, and counts as
in progress. Only the program that runs a search imports this module; it needs the extra ``syne-tune``.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from syne_tune.backend.trial_backend import BUSY_STATUS, TrialBackend
from syne_tune.backend.trial_status import Status, TrialResult

from eunomia.errors import InputError
from eunomia_appmaster.app.outputs import STDERR, STDOUT, output_files
from eunomia_appmaster.app.space import Parameter
from eunomia_appmaster.master.jobs import JobState
from eunomia_hpo_adapters.driven_app import DrivenApp
from eunomia_hpo_adapters.trial_reports import TrialReports

log = structlog.get_logger()

STATUS = {JobState.FINISHED: Status.completed, JobState.FAILED: Status.failed, JobState.STOPPED: Status.stopped}
"""Syne Tune's status of trials that have ended; all others are in progress, unless Syne Tune itself paused them."""


class EunomiaBackend(TrialBackend):
    """Runs Syne Tune's trials as the trials of an app, which is submitted at once and ends with the search.

    Trials report with Syne Tune's ``Reporter`` on their standard output. Syne Tune's trial 0 is the app's trial 1.

    Args:
        app_file: app file without ``[space]`` and usually without ``[tuner]``; its command must contain ``{args}``.
        time_attr: the ``time_attr`` of Syne Tune's scheduler, such as ``"epoch"``. If given, reports that a trial
            repeats after a restart from a checkpoint are left out.
        address: address of the arbiter; see ``eunomia_appmaster.Client``.
        token_file: see ``Client``.
        state_dir: see ``Client``.

    Raises:
        InputErrors: all errors of the app file.
        InputError: the app file names another tuner, or its file of orders already has a driver or orders.
        UnreachableError: no arbiter answers.
    """

    def __init__(
        self,
        app_file: Path | str,
        *,
        time_attr: str | None = None,
        address: str | None = None,
        token_file: Path | str | None = None,
        state_dir: Path | str | None = None,
    ) -> None:
        super().__init__()
        self._app_file = Path(app_file)
        self._time_attr = time_attr
        self._reports: dict[int, TrialReports] = {}
        self._stopped: set[int] = set()
        self.app = DrivenApp(app_file, address=address, token_file=token_file, state_dir=state_dir)
        log.info("search.submitted", app=self.app.name, orders=str(self.app.orders.path))

    # -- trials: Syne Tune counts from 0, the app from 1

    def _schedule(self, trial_id: int, config: dict[str, Any]) -> None:
        number = trial_id + 1
        if number <= self.app.orders.started:
            self.app.orders.resume(number)
            return
        self.app.orders.start({name: _plain(name, given) for name, given in config.items()})

    def resume_trial(self, trial_id: int, new_config: dict[str, Any] | None = None) -> TrialResult:
        """Resume a paused trial.

        Raises:
            InputError: ``new_config`` differs from the trial's configuration; a trial keeps its parameters.
        """
        if new_config is not None and new_config != self._trial_dict[trial_id].config:
            raise InputError("a resumed trial must keep its configuration", value=str(new_config)[:200])
        return super().resume_trial(trial_id)

    def _resume_trial(self, trial_id: int) -> None:
        """See ``TrialBackend``; ``_schedule`` writes the order."""

    def _pause_trial(self, trial_id: int, result: dict[str, Any] | None) -> None:
        self.app.orders.pause(trial_id + 1)

    def _stop_trial(self, trial_id: int, result: dict[str, Any] | None) -> None:
        self._stopped.add(trial_id)
        self.app.orders.stop(trial_id + 1)

    def stop_all(self) -> None:
        """Stop all trials that have not ended, and end the app."""
        super().stop_all()
        self.app.orders.end()
        self.app.orders.close()

    # -- queries of Syne Tune

    def _all_trial_results(self, trial_ids: list[int]) -> list[TrialResult]:
        self.app.check()
        states = self.app.states()  # read before the reports, so that all reports of an ended trial are read
        return [self._result(trial_id, states) for trial_id in trial_ids]

    def _result(self, trial_id: int, states: dict[int, JobState]) -> TrialResult:
        number = trial_id + 1
        if trial_id not in self._reports:
            self._reports[trial_id] = TrialReports(self.app.run_folder(number), self._time_attr)
        status = self._status(trial_id, states)
        reports = [dict(report) for report in self._reports[trial_id].poll()]
        return self._trial_dict[trial_id].add_results(
            metrics=reports, status=status, training_end_time=datetime.now() if status in STATUS.values() else None
        )

    def _status(self, trial_id: int, states: dict[int, JobState]) -> str:
        if trial_id in self._stopped:
            return str(Status.stopped)
        state = states.get(trial_id + 1, JobState.WAITING)
        if state in STATUS:
            return str(STATUS[state])
        return str(Status.paused if self._trial_dict[trial_id].status == Status.paused else Status.in_progress)

    def busy_trial_ids(self) -> list[tuple[int, str]]:
        """See ``TrialBackend``; trials that wait for a slot are busy, too."""
        states = self.app.states()
        found = [(trial_id, self._status(trial_id, states)) for trial_id in self.trial_ids]
        return [(trial_id, status) for trial_id, status in found if status in BUSY_STATUS]

    def stdout(self, trial_id: int) -> list[str]:
        """See ``TrialBackend``: the lines of all starts of the trial."""
        return self._lines(trial_id, STDOUT)

    def stderr(self, trial_id: int) -> list[str]:
        """See ``TrialBackend``: the lines of all starts of the trial."""
        return self._lines(trial_id, STDERR)

    def _lines(self, trial_id: int, stream: str) -> list[str]:
        files = [path for path in output_files(self.app.run_folder(trial_id + 1), stream) if path.exists()]
        return [line for path in files for line in path.read_text(errors="replace").splitlines(keepends=True)]

    def entrypoint_path(self) -> Path:
        """Return the path of the app file, after which Syne Tune names the search."""
        return self._app_file

    # -- unsupported operations

    def set_entrypoint(self, entry_point: str) -> None:
        """Refuse: the command is in the app file.

        Raises:
            InputError: always.
        """
        raise InputError("the command of trials must stand in the app file", value=entry_point)

    def copy_checkpoint(self, src_trial_id: int, tgt_trial_id: int) -> None:
        """Refuse: a trial starts only from its own checkpoints, so population-based training is not supported.

        Raises:
            InputError: always.
        """
        rule = "a trial must start without the checkpoint of another trial"
        raise InputError(rule, value=f"trial {tgt_trial_id} from {src_trial_id}")

    def delete_checkpoint(self, trial_id: int) -> None:
        """Do nothing: ``eunomia clean`` deletes checkpoints of ended apps."""


def _plain(name: str, given: Any) -> Parameter:
    """Return a value of a configuration as a plain one; numbers of NumPy become Python's."""
    plain = given.item() if hasattr(given, "item") else given
    if not isinstance(plain, bool | int | float | str):
        rule = "a configuration must have numbers, texts, true or false"
        raise InputError(rule, value=f"{type(given).__name__} {given!r}"[:200], place=name)
    return plain
