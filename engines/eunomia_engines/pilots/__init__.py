"""Pilots: processes that engines start on nodes; each locks a node name, runs the launcher and writes a record."""
