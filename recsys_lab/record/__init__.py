"""What a run leaves behind: `result.json` and the run folder, the contract that other programs read. Also metrics and loggers."""
