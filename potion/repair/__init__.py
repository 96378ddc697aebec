"""``potion heal`` and ``potion patch``: anybody's model, weights and data, from files to files."""
