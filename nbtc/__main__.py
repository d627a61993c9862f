"""`python -m nbtc` is the command line `nbtc`."""

import sys

from nbtc.cli import main

if __name__ == "__main__":
    sys.exit(main())
