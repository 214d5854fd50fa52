"""Double of the `atom` package: its command lines and its HTTP, no model and no GPU."""
