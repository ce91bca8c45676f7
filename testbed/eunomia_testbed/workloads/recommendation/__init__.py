"""Programs that recommend items to users, based on the items that the users like."""
