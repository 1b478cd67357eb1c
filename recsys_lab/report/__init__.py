"""What a run leaves behind: metrics, the record, W&B, the ablation table, the page. Reads run folders, never the trainer."""
