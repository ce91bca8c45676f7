"""The objects of the model: the cluster, users, apps, jobs, leases and GPUs, as columns that stages read.

This package makes no decisions. Every other package of ``eunomia`` may import it; it imports none of them.
"""
