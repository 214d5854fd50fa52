"""Load client of the ATOM double."""
