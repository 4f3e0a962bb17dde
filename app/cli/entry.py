"""Where the command begins: an interrupt ends it in order while its modules are still being imported."""

import sys


def main() -> int:
    """Run the command line and return its exit code, which is 130 where Ctrl-C comes before it runs: as app.cli.endings
    has it, which may not be there yet."""
    try:
        from app.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        return 130
