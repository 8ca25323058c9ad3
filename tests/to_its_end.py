"""Runs a script, and ends the process before Python takes itself down.

Gloo clears up in threads of its own, and one that comes to it only then aborts the process; which a busy machine makes
likely, however long the script waits for them.
"""

import os
import runpy
import sys

if __name__ == "__main__":
    script = sys.argv[1]
    sys.argv[:] = [script]
    runpy.run_path(script, run_name="__main__")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
