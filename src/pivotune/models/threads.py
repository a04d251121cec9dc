"""How many threads torch may use. Imports no torch, so that it can run before torch does.

torch's OpenMP threads spin at barriers: as soon as another process wants a core, several threads
run at a tenth of the speed of one. So one thread is the default. oneDNN keeps a kernel of megabytes
for every shape it has met; a thousand by default, which is gigabytes where lengths vary.
"""

import os
import sys

from pivotune.core.errors import RecipeError


def limit_threads() -> int:
    """Hold this process to PIVOTUNE_THREADS threads (default 1); returns their number."""
    text = os.environ.get("PIVOTUNE_THREADS", "1")
    if not text.isdecimal() or int(text) < 1:
        raise RecipeError("PIVOTUNE_THREADS is not a number of threads", got=text, expected="1, 2…")
    os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = text
    os.environ.setdefault("GOMP_SPINCOUNT", "2000")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(text))
    return int(text)
