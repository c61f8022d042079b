"""Arrays and frames in; text, figures, pages and progress out. Knows nothing of training."""
