"""``python -m dphe.flower key-generator FOLDER SOCKET`` opens sums for a node or a server on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from dphe.flower.key_generator import serve_key_generator


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m dphe.flower", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("key-generator", help="answer requests on a Unix socket")
    serve.add_argument("folder", type=Path, help="the folder key-generator that create_task made")
    serve.add_argument(
        "socket", type=Path, help="the socket, in a folder that only those may enter who may ask"
    )
    serve.add_argument("--passphrase-file", type=Path, help="a file with the passphrase of the key")
    arguments = parser.parse_args()
    passphrase = None
    if arguments.passphrase_file is not None:
        passphrase = bytearray(arguments.passphrase_file.read_bytes().rstrip(b"\r\n"))
    serve_key_generator(arguments.folder, arguments.socket, passphrase=passphrase)


if __name__ == "__main__":
    main()
