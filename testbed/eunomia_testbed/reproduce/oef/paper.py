"""OEF for ``eunomia reproduce``: grid, claims, and descriptions."""

from collections.abc import Sequence

from eunomia_testbed.reproduce.oef.cells import COMPLETION, OVERHEAD, POLICIES, RESTART, OefCell, OefFigures, run_cell
from eunomia_testbed.reproduce.oef.claims import claims
from eunomia_testbed.reproduce.oef.grid import LIE, OefGrid
from eunomia_testbed.reproduce.oef.tenants import FOUR, JOBS
from eunomia_testbed.reproduce.paper import Paper


def fixed(grid: OefGrid) -> Sequence[str]:
    """Return the decisions made before the first run."""
    sets = "Gavel's measured K80, P100, V100 rates of one GPU" if grid.throughputs else "none: --set throughputs=FILE"
    return (
        "cluster: 8 + 8 + 8 GPUs of three types, four on a host; rounds of five minutes under every policy; "
        f"a start takes {RESTART:g} s",
        f"Gavel's speeds: {sets}; printed speeds: RTX 3090 over 3070 VGG 1.39 and LSTM 2.15, four models spaced evenly "
        "between, RTX 3080 by memory bandwidth (assumed)",
        "throughput is linear in GPUs; a gang on several hosts is 1.1 times slower, one of several GPU types as slow "
        "as the slowest",
        "; ".join(f"four tenants, {name}: {', '.join(models)}" for name, models in FOUR.items()),
        f"jobs that do not end: {JOBS} a tenant, 1, 2 or 4 GPUs (0.7, 0.1, 0.2), {grid.hours:g} h; rates are known",
        "estimated: shares of an allocation, before rounding; actual: simulated, all under the placement packed",
        f"tenant 1 lies by {LIE:g} on the fastest type and by its root on the type between; profiling errors are by "
        "tenant and GPU type, uniform",
        "Figure 9: the generator oef, 50 tenants with 20 jobs on average, three days, load 1 of the slowest type",
        "policies: " + ", ".join(f"{name} (preset {preset})" for name, preset in POLICIES.items()),
    )


def said(cell: OefCell, figures: OefFigures) -> str:
    """Describe a cell by its settings and its figure."""
    more = [cell.change, f"lie {cell.lie:g}" if cell.lie != 1.0 else "", f"error {cell.error:g}" if cell.error else ""]
    more.append(cell.placement if cell.placement != "packed" else "")
    what = ", ".join(
        [cell.what, cell.policy, cell.speeds, f"{cell.tenants} tenants", f"seed {cell.seed}", *filter(None, more)]
    )
    if cell.what == COMPLETION:
        return f"{what}: mean JCT {figures.mean_jct_seconds:.0f} s"
    if cell.what == OVERHEAD:
        return f"{what}: {1000.0 * figures.cpu_seconds:.0f} ms"
    return f"{what}: {figures.total:.2f} GPUs of the slowest type"


PAPER = Paper(
    title="OEF (Middleware 2024)",
    grid=OefGrid,
    figures=OefFigures,
    claims=claims,
    run=run_cell,
    fixed=fixed,
    said=said,
)
