"""The operator's console: inventory, hosts, runs and what is up as live objects, and the verbs as functions."""
