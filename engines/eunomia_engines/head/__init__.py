"""The head: the arbiter of a state folder whose nodes an engine gives, and the keeper of those nodes beside it."""
