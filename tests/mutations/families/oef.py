"""What OEF's stages read, on GPUs of two types."""

from collections.abc import Mapping

from eunomia import Stage
from mutations.worlds import typed_world

WORLD = typed_world

READS: Mapping[tuple[str, Stage], set[str]] = {
    ("oef_speedups", Stage.VALUATION): {"types"},
    ("oef_noncooperative", Stage.ALLOCATION): {"values"},
    ("oef_cooperative", Stage.ALLOCATION): {"values"},
    ("oef_efficient", Stage.ALLOCATION): {"values"},
}
