"""One step of the arbiter: fold events, call the stages, check, plan, adopt. Begin at ``Arbiter.step``.

Drivers (the simulator, the live service, tests) call ``Arbiter``; nothing here reads a clock, a file or a socket.
"""
