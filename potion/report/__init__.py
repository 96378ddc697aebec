"""One self-contained HTML page, from the result of a heal or from a folder of benchmark results."""
