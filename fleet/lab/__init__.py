"""The lab: real nodes (own network, root file system, sshd, Docker engine) on one Linux machine. See docs/lab.md."""
