"""One step of the arbiter: apply events, call the stages, check, plan, adopt. Start reading at ``Arbiter.step``.

Drivers (the simulator, the live service, tests) call ``Arbiter``; this package reads no clock, file or socket.
"""
