"""Double of ATOM's models: they are there and compute nothing."""
