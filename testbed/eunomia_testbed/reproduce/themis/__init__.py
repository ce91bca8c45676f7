"""The claims of Themis (NSDI'20): Figures 9 to 19, Tables 3 and 5, and the time of an auction."""
