"""What a user submits: the app file and its tables, commands, search spaces, and the files of an app."""
