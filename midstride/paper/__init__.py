"""The paper's results, one file each."""
