"""All combinations of stages in a small crowded world, and the pages of the reference that list them."""
