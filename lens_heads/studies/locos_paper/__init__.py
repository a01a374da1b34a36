"""The LOCOS paper (Gema et al., arXiv 2607.01002), re-run on any model and compared with its published numbers."""
