#!/usr/bin/env bash
# Make .venv and install WarpDrive into it: `bash setup.sh` to use it, `bash setup.sh dev` to work on it as well.
# On Python 3.11 with the tested versions; PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")"
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
if [ "${1:-}" = dev ]; then
    .venv/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
    if ! command -v chromium >/dev/null; then # the replay page is tested in a browser
        sudo=$([ "$(id -u)" = 0 ] || echo sudo)
        $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium >/dev/null
    fi
else
    .venv/bin/pip install -q --disable-pip-version-check -c constraints.txt -e .
fi
