"""Pages, pictures and the terminal: how a run is shown. Reads run folders, never the run itself."""
