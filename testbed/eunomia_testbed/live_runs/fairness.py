"""Finish-time fairness of ended apps: an app's time in the shared cluster over its time with an equal share."""

from collections.abc import Mapping

from eunomia_testbed.live_runs.record import AppLife


def contention(app: AppLife, apps: Mapping[str, AppLife], until: float) -> float:
    """Return N_avg, the mean number of apps present over the app's life (Themis eq. 1)."""
    start, end = app.again_at or app.arrived_at, app.ended_at or until
    if end <= start:
        return 1.0
    shared = [min(end, other.ended_at or until) - max(start, other.arrived_at) for other in apps.values()]
    return max(1.0, sum(max(0.0, seconds) for seconds in shared) / (end - start))


def final_rho(app: AppLife, apps: Mapping[str, AppLife], slots: int) -> float | None:
    """Return T_sh / T_id of an ended app (Themis eq. 1 and 2); None: not ended, or its work is unknown.

    T_id is the time of the app's total work, as last reported, on all slots that the app could use, times N_avg. For an
    app that was resumed after its end, both times count from the resumption.
    """
    if app.ended_at is None or app.forecast is None or app.forecast.total_gpu_seconds <= 0.0 or not slots:
        return None
    alone = app.forecast.total_gpu_seconds / max(1, min(slots, app.forecast.most))
    return (app.ended_at - (app.again_at or app.arrived_at)) / (alone * contention(app, apps, app.ended_at))
