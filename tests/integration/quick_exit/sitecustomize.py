"""An interpreter that begins with this does not look through all that it has imported
once more when it exits: half a second of each training. What it has recorded by then is
the same; tests of exits do without it.
"""

import atexit
import gc

atexit.register(gc.freeze)
