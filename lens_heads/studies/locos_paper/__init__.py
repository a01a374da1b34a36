"""The argument of the LOCOS paper (Gema et al., arXiv 2607.01002), re-run on any model and put beside its numbers."""
