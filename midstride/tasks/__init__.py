"""The tasks: one file each, or one folder, with its Gymnasium face and its settings."""
