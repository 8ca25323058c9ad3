"""What stands above ``fit``: whole jobs made of one or several runs."""
