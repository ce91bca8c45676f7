"""The objects of the model: the cluster, users, apps, jobs, leases and GPUs, as columns that stages read.

Nothing here decides anything. Every other room of ``eunomia`` imports this one; it imports none of them.
"""
