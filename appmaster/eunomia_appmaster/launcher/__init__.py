"""The launcher: starts, watches, kills and adopts the worker processes and app masters of one machine.

What YARN calls a node manager: ``python -m eunomia_appmaster.launcher --help`` (wire: ``protocol/launcher.proto``).

- ``node``       who this machine is: lock, address, secret, epochs of its slots
- ``gangs``      a request to start: what is checked, what a worker finds in its environment
- ``containers`` the life of a container: start, follow, stop, kill, adopt
- ``shepherd``   the parent of every worker, which writes how it ended
- ``zygote``     the process that forks workers with torch imported; ``nursery`` is its owner in the launcher
- ``orders``     orders.sock, over which workers hear orders
- ``app_masters``, ``tracker``, ``server``  app masters with restarts; the arbiter's client; the service

This file imports nothing: the zygote and the shepherd load it, too.
"""
