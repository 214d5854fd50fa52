"""From a config key to publishable inference-benchmark numbers, on any machines you can SSH to."""

import sys

# Invoke switches bytecode off before it loads tasks.py: every verb would compile all of fleet anew.
sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
