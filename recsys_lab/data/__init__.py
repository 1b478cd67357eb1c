"""Data sets: rows of dense values, categorical ids and a label, read in batches that are split over ranks."""
