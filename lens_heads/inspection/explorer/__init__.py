"""See what heads read and write, in a notebook or on a page. `lh.explore` is in `widget`, which needs the extra `explorer`."""
