"""All checks, in the order in which they run."""

from gpu_checks import live, on_one_device
from gpu_checks.check import GpuCheck

CHECKS = (
    GpuCheck(name="slots", run=on_one_device.slots_of_gpus),
    GpuCheck(name="memory-shares", run=on_one_device.shares_of_memory),
    GpuCheck(name="checkpoints", run=on_one_device.checkpoints),
    GpuCheck(name="starts", run=live.starts),
    GpuCheck(name="memory-free-first", run=live.memory_is_free_first),
    GpuCheck(name="nccl", run=on_one_device.nccl),
    GpuCheck(name="gloo", run=on_one_device.gloo),
    GpuCheck(name="fault-of-a-job", run=live.fault_of_a_job),
    GpuCheck(name="demo", run=live.demo, limit_seconds=900.0),
    GpuCheck(name="faults", run=on_one_device.faults),
)
