"""Rankings by training something small on every head of a frozen model."""
