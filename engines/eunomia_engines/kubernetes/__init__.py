"""Kubernetes: manifests of an arbiter and its launchers, and the keeper of nodes; not tested with a real API server."""
