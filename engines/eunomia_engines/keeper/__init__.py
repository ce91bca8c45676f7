"""The keeper: asks an engine for nodes while jobs wait, replaces those that end, and gives back idle ones."""
