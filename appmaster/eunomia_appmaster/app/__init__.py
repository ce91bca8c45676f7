"""The parts of a submission: the app file and its tables, commands, search spaces, and the files of an app."""
