"""The benchmark: suites (TOML) -> plan -> runs (one JSON each) -> tables and figures, made from these files alone."""
