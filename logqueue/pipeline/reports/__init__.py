"""Reports: what there are, and how they are written as files and as a page."""
