"""What a run found, as a page to look at."""
