"""The options that a user gives for reading a trace."""

import dataclasses
from collections.abc import Mapping

from eunomia.model.shapes import value
from eunomia_testbed.performance import GavelThroughputs


@value
class ReadOptions:
    """Options of all readers; a format ignores those that it does not use."""

    strict: bool = False
    """Whether the first row that would be dropped is an error."""
    throughputs: GavelThroughputs | None = None
    """Measured rates by job type, which convert the steps of Gavel's and Shockwave's traces to times."""
    reference_type: str | None = None
    """The GPU type on which the trace's times were measured, for rows without one; None: unknown, but ``v100`` for
    formats whose times come from ``throughputs``."""
    gpu_type: str | None = None
    """The old name of ``reference_type`` for Gavel's and Shockwave's traces."""
    models: tuple[str, ...] = ()
    """Models from which one is drawn, by a hash of id and seed, for each job without a model in the trace."""
    drawn_models: bool = False
    """Whether to use the models drawn by the authors of the file (Philly's ``afs_model``)."""
    seed: int = 0
    """Seed for drawing models."""
    by_group: bool = False
    """Whether the trace's groups (virtual clusters, queues) serve as the workload's users, instead of its users."""
    users: tuple[str, ...] = ()
    """Users whose jobs are read; empty: all users."""
    first_jobs: int | None = None
    """Number of jobs to read, the first ones by arrival; None: all."""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Column names for the format ``columns``, by the keys ``id``, ``submit``, ``duration`` or ``end``, ``gpus``,
    ``user`` and ``model``; times may have a unit after a colon, such as ``start_time:ms``."""
