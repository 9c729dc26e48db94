"""``python -m dphe`` starts the program ``dphe`` that a release wheel contains."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path


def _program() -> Path | None:
    """Return the path of the program, if this wheel has it."""
    folders = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    paths = [Path(folder, "dphe") for folder in folders]
    return next((path for path in paths if path.is_file() and os.access(path, os.X_OK)), None)


def main() -> int:
    """Replace this process by the program."""
    program = _program()
    if program is None:
        print(
            "error: this installation has no program `dphe`\n"
            "Install it from the source code of the project: cargo install --path crates/dphe-cli",
            file=sys.stderr,
        )
        return 1
    os.execv(program, [str(program), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
