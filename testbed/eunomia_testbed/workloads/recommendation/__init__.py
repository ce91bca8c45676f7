"""Programs that recommend items to users by the items that they like."""
