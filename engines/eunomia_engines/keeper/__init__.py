"""The keeper: requests nodes from an engine while jobs wait, replaces nodes that end, and gives back idle ones."""
