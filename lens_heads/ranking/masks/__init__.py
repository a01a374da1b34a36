"""Rankings by ablating sets of heads together and finding the few that explain the damage."""
