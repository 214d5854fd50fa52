"""Entry points of the ATOM double."""
