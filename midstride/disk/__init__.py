"""Files that are whole or not there, and a run made of them."""
