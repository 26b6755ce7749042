#!/bin/sh
# Installs rmq into a virtual environment of its own, as the container images do and as the systemd units expect:
#
#   sh deploy/install.sh SOURCE PREFIX [EXTRA]     SOURCE: a checkout; EXTRA: broker (default), proxy or spark
#
# PYTHON names the interpreter (python3; 3.11 or newer). The hot path is compiled if there is a C compiler, in about
# a minute; RMQ_COMPILE=0 leaves it interpreted, and RMQ_COMPILE=1 fails without a compiler. PREFIX is replaced as a
# whole if it is an environment already: stop the daemons before. Settings and messages are never in it.
set -eu
umask 022

source=$1
prefix=$2
extra=${3:-broker}
python=${PYTHON:-python3}

"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  { echo "install.sh: $python is older than 3.11; name another one: PYTHON=python3.12" >&2; exit 1; }
if [ -e "$prefix" ] && [ ! -e "$prefix/pyvenv.cfg" ] && [ -n "$(ls -A "$prefix")" ]; then
  echo "install.sh: $prefix holds something else, and is left alone" >&2
  exit 1
fi

wheels=$(mktemp -d)
trap 'rm -rf "$wheels"' EXIT
"$python" -m venv --clear "$prefix"
pip="$prefix/bin/python -m pip --quiet --disable-pip-version-check --no-cache-dir"
if [ -z "${RMQ_COMPILE:-}" ]; then
  RMQ_COMPILE=1
  find_compiler='import sys; from compiling.c_compiler import find_c_compiler as find; found = find()
sys.exit(found if isinstance(found, str) else 0)'
  reason=$(PYTHONPATH=$source "$prefix/bin/python" -c "$find_compiler" 2>&1) || {
    echo "install.sh: the broker will run interpreted, at about twice the CPU per message: $reason" >&2
    RMQ_COMPILE=0
  }
fi
export RMQ_COMPILE
# A wheel, not the folder: what is installed is then what is published, and the checkout may go.
$pip wheel --no-deps --wheel-dir "$wheels" "$source"
$pip install -c "$source/constraints.txt" "$(echo "$wheels"/rmq-*.whl)[$extra]"

# Nothing is installed into it afterwards.
$pip uninstall --yes pip > "$wheels/uninstalled"
