"""Commands about engines; each is imported when it is called."""
