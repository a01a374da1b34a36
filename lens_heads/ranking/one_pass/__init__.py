"""Rankings read off one pass over each trial: what heads look at and what they write."""
