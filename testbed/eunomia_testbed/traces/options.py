"""A user's options for reading a trace."""

import dataclasses
from collections.abc import Mapping

from eunomia.model.shapes import value
from eunomia_testbed.performance import GavelThroughputs


@value
class ReadOptions:
    """Options of every reader; a format ignores those that it does not use."""

    strict: bool = False
    """Whether the first row that would be dropped is an error."""
    throughputs: GavelThroughputs | None = None
    """Measured rates by job type: Gavel's and Shockwave's traces give steps, and these rates give their times."""
    reference_type: str | None = None
    """The GPU type on which the trace's times were measured, for rows that name none; None: unknown, but ``v100`` for
    formats whose times are those of ``throughputs``."""
    gpu_type: str | None = None
    """The old name of ``reference_type`` for Gavel's and Shockwave's traces."""
    models: tuple[str, ...] = ()
    """Models to draw from, by a hash of id and seed, for jobs whose trace gives no model."""
    drawn_models: bool = False
    """Whether to use the models that the authors of the file drew (Philly's ``afs_model``)."""
    seed: int = 0
    """Seed of the draw of models."""
    by_group: bool = False
    """Whether users are the trace's groups (virtual clusters, queues), not its users."""
    users: tuple[str, ...] = ()
    """Only jobs of these users; empty: all jobs."""
    first_jobs: int | None = None
    """Only this many jobs, the first by arrival; None: all."""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """For the format ``columns``: by ``id``, ``submit``, ``duration`` or ``end``, ``gpus``, ``user`` and ``model`` the
    name of the file's column, for times with a unit behind a colon, such as ``start_time:ms``."""
