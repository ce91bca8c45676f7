"""Crowded snapshots on which a stage is asked."""

from functools import lru_cache

from eunomia import Feature
from eunomia.model.adaptations import ComingRegime
from eunomia.testing.builders import World


@lru_cache(maxsize=1)
def busy_world() -> World:
    """Twelve GPUs, eight of them free or on offer, and many jobs of all sizes and lengths, of three users."""
    world = World("3x4 V100 16cpu 64GB", seed=5)
    for number, (user, weight) in enumerate((("ana", 1.0), ("bo", 2.0), ("cy", 1.0), ("ana", 0.5))):
        world.app(f"app{number}", user=user, weight=weight, arrived=float(number), contention=3.0)
    table = ((1, 2, 90), (2, 4, 40), (1, 1, 300), (3, 4, 70), (1, 4, 20), (2, 2, 150), (1, 1, 30), (1, 3, 10))
    for number, (least, most, seconds) in enumerate(table):
        world.job(
            f"app{number % 4}/{number}",
            gpus=(least, most),
            arrived=float(number),
            iterations=10.0 * seconds,
            seconds_per_iteration=0.1 * most,
            received=float(50 * (number % 3)),
        )
    for number in (1, 3, 4):
        iterations = 3.0 * table[number][2]
        world.announces(f"app{number % 4}/{number}", ComingRegime(iterations=iterations, rate=20.0))
    # One that holds two GPUs on offer and could use four, but finds no CPUs for more.
    world.job("grow/1", gpus=(2, 4), arrived=-1.0, cpus=8.0, iterations=50000.0, seconds_per_iteration=0.2)
    world.holds("grow/1", 0, 1, ends_at=50.0, cpus=8.0)
    world.job("run/1", gpus=2, iterations=900.0, since=0.0, rate=2.0).holds("run/1", 4, 5, cpus=6.0)
    world.job("run/2", gpus=2, iterations=300.0, since=0.0, rate=2.0).holds("run/2", 8, 9, cpus=6.0)
    return world


@lru_cache(maxsize=1)
def typed_world() -> World:
    """Six GPUs of two types, and jobs of three users in one size each, whose rates on each type are measured."""
    world = World("2x2 P100, 1x2 V100", seed=5)
    for user, weight in (("ana", 1.0), ("bo", 2.0), ("cy", 1.0)):
        world.app(user, user=user, weight=weight, contention=3.0)
    for number, speedup in enumerate((1.2, 1.9, 3.1, 2.4, 1.5, 4.0)):
        job = f"{('ana', 'bo', 'cy')[number % 3]}/{number}"
        world.job(job, gpus=1 + number // 3, arrived=float(number), iterations=9000.0, kind=f"kind{number % 4}")
        for gpu_type, rate in (("P100", 1.0), ("V100", speedup)):
            world.measures(job, 1 + number // 3, rate * (1 + number // 3), gpu_type=gpu_type)
    return world


@lru_cache(maxsize=1)
def sensitive_world() -> World:
    """Twelve GPUs on machines with few CPUs, and jobs whose rates with several CPUs and memory are measured."""
    world = World("3x4 V100 16cpu 64GiB", seed=5)
    for number, gpus in enumerate((1, 2, 1, 4, 1, 2, 1)):
        job = f"app{number % 3}/{number}"
        world.job(job, gpus=gpus, arrived=float(number), iterations=9000.0)
        for cpus in (1.0, 2.0, 4.0, 6.0):
            for memory_gib in (4.0, 16.0, 24.0):
                rate = gpus * (min(cpus, 2.0 + number % 4) + 0.1 * memory_gib * (number % 2))
                world.measures(job, gpus, rate, cpus=cpus * gpus, memory_gib=memory_gib * gpus)
    world.job("run/1", gpus=2, iterations=900.0, since=0.0, rate=2.0)
    return world.holds("run/1", 4, 5, cpus=6.0, memory_gib=20.0, ranges=(2.0, 6.0, 10.0, 20.0)).needs(
        Feature.CPU_POINTS
    )
