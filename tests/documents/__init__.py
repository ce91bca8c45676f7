"""The documents' fenced commands: found, run in a folder of their own, or parsed by their commands' own parsers."""
