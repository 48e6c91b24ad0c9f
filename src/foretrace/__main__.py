"""``python -m foretrace``."""

import sys

from foretrace.cli import main

sys.exit(main())
