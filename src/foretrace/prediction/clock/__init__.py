"""The time model: what a GPU would run for a program's work, for how long, and how sure that is.

``schedule`` is the whole of it. A product takes the time that its tiles and waves take (`products`), a memory-bound
kernel that of its bytes (`memory`), each between the times with operands in memory and in the L2 cache, as the step's
own traffic leaves it (`cache`); the nearest measured calls then correct the model and name the kernels (`neighbours`,
`foretrace.knowledge.calibration`). On a GPU nobody measured, rates scale with the datasheet and intervals widen.
"""

from foretrace.prediction.clock.schedule import host_us, launch_us, schedule

__all__ = ["host_us", "launch_us", "schedule"]
