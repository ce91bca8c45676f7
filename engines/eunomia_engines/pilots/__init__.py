"""Pilots: what an engine starts on a node; each takes a name, becomes the node's launcher, and leaves a record."""
