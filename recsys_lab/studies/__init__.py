"""Studies: a table or figure of a paper, its figures beside ours, and the verdict that follows from them."""
