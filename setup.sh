#!/usr/bin/env bash
# Make .venv and install WarpDrive into it: `bash setup.sh` to use it, `bash setup.sh dev` to work on it as well.
# On Python 3.11 with the tested versions; PYTHON names another interpreter.
set -euo pipefail
cd "$(dirname "$0")"
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
if [ "${1:-}" = dev ]; then
    .venv/bin/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
    # PyTorch for the CPU comes without Triton, in whose interpreter its kernels are tested there.
    if [ "$(uname)" = Linux ] && ! .venv/bin/python -c 'import triton' 2>/dev/null; then
        .venv/bin/pip install -q --disable-pip-version-check triton==3.9.0
    fi
    if ! command -v chromium >/dev/null; then # the replay page is tested in a browser
        sudo=$([ "$(id -u)" = 0 ] || echo sudo)
        $sudo apt-get update -qq && $sudo apt-get install -y -qq chromium >/dev/null
    fi
else
    .venv/bin/pip install -q --disable-pip-version-check -c constraints.txt -e .
fi
