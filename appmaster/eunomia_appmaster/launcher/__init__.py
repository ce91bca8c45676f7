"""The launcher: starts, watches, kills and adopts the worker processes and app masters of one machine.

What YARN calls a node manager: ``python -m eunomia_appmaster.launcher --help`` (wire: ``protocol/launcher.proto``).

- ``node``       the machine's identity: lock, address, secret, epochs of its slots
- ``gangs``      a start request: its checks, and the environment of each worker
- ``containers`` the life of a container: start, follow, stop, kill, adopt
- ``shepherd``   the parent of every worker, which records its exit
- ``zygote``     the process that forks workers with torch imported; ``zygote_client`` is the launcher's side of it
- ``orders``     orders.sock, over which workers receive orders
- ``app_masters``, ``tracker``, ``server``  app masters with restarts; the arbiter's client; the service

This file imports nothing, because the zygote and the shepherd load it, too.
"""
