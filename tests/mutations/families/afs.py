"""What AFS's stages read."""

from collections.abc import Mapping

from eunomia import Stage

READS: Mapping[tuple[str, Stage], set[str]] = {
    ("afs_curves", Stage.VALUATION): {"sizes", "rates"},
    # Rates say only where a job is fastest, which does not change if all of them do.
    ("afs_peak", Stage.VALUATION): {"sizes"},
    ("afs", Stage.ALLOCATION): {"sizes", "values"},
}
