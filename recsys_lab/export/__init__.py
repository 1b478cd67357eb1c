"""A trained model as a folder that needs nothing of this package: `export_run`. What it is for: docs/moves.md."""
