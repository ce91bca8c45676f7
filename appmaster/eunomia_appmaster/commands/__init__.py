"""The live system's commands; each is imported when it is called."""
