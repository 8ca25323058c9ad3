"""``stepe review``: a local web app in which people go through the suspects of a run."""
