"""Tables, plots and pages: from files alone."""
