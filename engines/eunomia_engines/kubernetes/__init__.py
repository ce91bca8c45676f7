"""Kubernetes: manifests of an arbiter and its launchers; never run against a real API server."""
