#!/bin/sh
# Makes .venv with the package and what it needs, or finds that it is already there.
#
#   sh tools/setup.sh core    the package
#   sh tools/setup.sh dev     the package and the development tools
#
# PYTHON=... names the Python to use. pip's own settings (its environment variables and pip.conf) are honoured.
# Everything pip says goes to stdout; stderr gets one line, and only when the set-up failed.
set -u

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

case ${1-} in
  core | dev) want=$1 ;;
  *) fail 'say what to set up: sh tools/setup.sh core, or sh tools/setup.sh dev' ;;
esac

CDPATH='' cd -P -- "$(dirname -- "$0")/.." || exit 1

# Each of these would make Python or pip look, or install, somewhere else than in .venv.
unset PYTHONHOME PYTHONPATH VIRTUAL_ENV __PYVENV_LAUNCHER__ PIP_PYTHON PIP_TARGET PIP_PREFIX PIP_ROOT
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1

venv=.venv
previous=.venv.previous   # an earlier environment, kept until the new one is ready
unfinished=$venv/.stepe-unfinished   # holds our process id until then
scratch=$venv/.stepe-tmp   # pip's temporary files: they go with .venv, and never fill a small /tmp

exists() { [ -e "$1" ] || [ -L "$1" ]; }

# The build can lose a race against a last file written by a child of a stopped pip: try twice.
discard() { rm -rf "$1" 2>/dev/null || { sleep 1; rm -rf "$1"; }; }

# Take back a build that did not finish; venvs work only where they were made, so the earlier one returns there.
undo() {
  if exists "$unfinished" || exists "$previous"; then
    discard "$venv"
    if exists "$previous"; then mv "$previous" "$venv"; fi
  fi
  rm -rf "$scratch"
}

# The new one is ready: the earlier one goes, unless somebody made it by hand.
retire_previous() {
  exists "$previous" || return 0
  if [ -f "$previous/.stepe-core" ] || [ -f "$previous/.stepe-dev" ]; then
    discard "$previous"
  else
    kept=$venv.kept.$(date +%Y%m%d%H%M%S)
    mv "$previous" "$kept"
    say "the .venv that was here was not made by this script: it is kept as $kept"
  fi
}

# ---------------------------------------------------------------------------------------------------------------
# Is there nothing to do?

# What an environment was made from. Only the tables of pyproject.toml that decide what is installed count.
fingerprint='
import hashlib, importlib.util, os, sys, tomllib
with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
with open("constraints.txt", "rb") as file:
    pins = file.read()
what = [project.get("build-system"), project["project"], project.get("tool", {}).get("hatch"), pins,
        sys.implementation.name, sys.version_info[:2], os.uname().machine, os.getcwd(),
        importlib.util.find_spec("torch") is None]
print(hashlib.sha256(repr(what).encode()).hexdigest())
'
# Which Python it is, whatever environment it is called through.
identity='
import os, sys
print(sys.implementation.name, sys.version_info[:2], os.path.realpath(sys.base_prefix))
'

has() { # has core|dev: the environment is stamped so, and for what is here now
  [ -f "$venv/.stepe-$1" ] && [ -n "$now" ] && [ "$(cat "$venv/.stepe-$1")" = "$now" ]
}

if [ -f "$unfinished" ]; then
  other=$(cat "$unfinished")
  if [ -n "$other" ] && kill -0 "$other" 2>/dev/null; then
    fail "another set-up (process $other) is at work here: wait for it, or, if it is not so, run 'make clean-venv'"
  fi
  undo   # it was killed
elif exists "$venv"; then
  retire_previous   # killed just after the build
elif exists "$previous"; then
  mv "$previous" "$venv"   # killed just before it
fi

now=''
if [ -x "$venv/bin/python" ] && ! exists "$unfinished"; then
  now=$("$venv/bin/python" -c "$fingerprint" 2>/dev/null)
  if [ -n "${PYTHON-}" ] && [ "$("$PYTHON" -c "$identity" 2>&1)" != "$("$venv/bin/python" -c "$identity" 2>&1)" ]; then
    now=''   # made with another Python than the one asked for
  fi
fi
if has dev || { [ "$want" = core ] && has core; }; then exit 0; fi

# ---------------------------------------------------------------------------------------------------------------
# From here on something is written: an interruption undoes it.

pip_process=''
stop() {
  trap '' INT TERM HUP PIPE
  if [ -n "$pip_process" ]; then
    kill -INT "$pip_process" 2>/dev/null
    wait "$pip_process" 2>/dev/null
  fi
  undo
  printf 'setup: interrupted; nothing half-made is left\n' >&2
  exit "$1"
}
trap 'stop 129' HUP
trap 'stop 130' INT
trap 'stop 141' PIPE   # `make demo | head`
trap 'stop 143' TERM

# pip runs in the background, so that a signal to this script alone is acted on at once. The shell makes background
# processes ignore Ctrl-C, and pip needs it (to tidy up, and to give the terminal its cursor back): undo that.
pip_code='
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("pip", run_name="__main__", alter_sys=True)
'
pip_install() {
  if [ -t 0 ]; then exec 3<&0; else exec 3</dev/null; fi
  TMPDIR=$PWD/$scratch "$venv/bin/python" -c "$pip_code" install -c "$scratch/constraints.txt" "$@" <&3 2>&1 &
  pip_process=$!
  wait "$pip_process"
  pip_status=$?
  pip_process=''
  return "$pip_status"
}

# A torch that was there before is kept, so its pin goes, and so do the pins of what it names itself: torch asks for
# exact versions of some, and rather than miss them pip would fetch another torch.
kept_torch='
import importlib.metadata as metadata, re
def name(text):
    return re.sub("[-_.]+", "-", re.match("[A-Za-z0-9_.-]*", text)[0]).lower()
free = {"torch", *map(name, metadata.requires("torch") or [])}
for line in open("constraints.txt", encoding="utf-8"):
    if name(line) not in free:
        print(line, end="")
print("torch==" + metadata.version("torch"))
'
write_constraints() {
  mkdir -p "$scratch" || return
  if grep -q '^include-system-site-packages *= *true' "$venv/pyvenv.cfg" 2>/dev/null; then
    "$venv/bin/python" -c "$kept_torch" >"$scratch/constraints.txt" 2>/dev/null
  else
    cp constraints.txt "$scratch/constraints.txt"
  fi
}

stamp() {
  now=$("$venv/bin/python" -c "$fingerprint" 2>/dev/null)
  [ -n "$now" ] && printf '%s\n' "$now" >"$venv/.stepe-$want"
}

# ---------------------------------------------------------------------------------------------------------------
# The package is there and the tools are not: add them. Nothing that is installed changes, so a failure costs nothing.

if has core; then
  say 'adding the development tools to .venv'
  tools='
import tomllib
with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["project"]["optional-dependencies"]["dev"], sep="\n")
'
  if write_constraints && "$venv/bin/python" -c "$tools" >"$scratch/tools.txt" &&
    pip_install -r "$scratch/tools.txt" && stamp; then
    rm -rf "$scratch"
    exit 0
  fi
  rm -rf "$scratch"
  fail 'pip could not add the development tools (its reason is above); .venv stays as it was, with the package alone'
fi

# ---------------------------------------------------------------------------------------------------------------
# Choose a Python. A command of the right name may not run (pyenv has one for each version it knows of).

probe='
import sys
print("%d.%d.%d" % sys.version_info[:3])
print(getattr(sys, "_base_executable", "") or sys.executable)
'
try_python() { # sets version ("" when it does not run) and base, the Python behind any environment that is active
  version=''
  base=''
  answer=$("$1" -c "$probe" 2>/dev/null) || return 1
  version=$(printf '%s\n' "$answer" | sed -n 1p)
  base=$(printf '%s\n' "$answer" | sed -n 2p)
  case $version in [0-9]*.[0-9]*.[0-9]*) ;; *) version='' && return 1 ;; esac
  "$base" -c '' 2>/dev/null || base=$1
}
new_enough() {
  major=${version%%.*}
  minor=${version#*.}
  minor=${minor%%.*}
  [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -ge 11 ]; }
}

if [ -n "${PYTHON-}" ]; then
  try_python "$PYTHON" || fail "PYTHON=$PYTHON does not run: name a Python 3.11 or newer"
  new_enough || fail "PYTHON=$PYTHON is Python $version: Python 3.11 or newer is needed"
  chosen=$PYTHON
else
  chosen=''
  found=''
  for candidate in python3.13 python3.12 python3.11 python3; do
    command -v "$candidate" >/dev/null 2>&1 || continue
    if ! try_python "$candidate"; then
      found="$found${found:+, }$candidate (does not run)"
    elif new_enough; then
      chosen=$candidate
      break
    else
      found="$found${found:+, }$candidate (Python $version)"
    fi
  done
  [ -n "$chosen" ] ||
    fail "Python 3.11 or newer is needed; found: ${found:-none}. Install one, or name it with PYTHON=/path/to/python3"
fi
say "using $chosen (Python $version, $base)"

"$base" -c 'import ensurepip, venv' 2>/dev/null ||
  fail "$chosen lacks the venv and ensurepip modules: install them (Debian, Ubuntu: apt install python3-venv," \
    "or python${version%.*}-venv), or name another Python with PYTHON=/path/to/python3"

# ---------------------------------------------------------------------------------------------------------------
# Make the environment.

# The version of the torch this Python has, if it can be imported and is new enough.
torch_here='
import importlib.util, sys
if importlib.util.find_spec("torch") is None:
    sys.exit()
import importlib.metadata, re, tomllib
with open("pyproject.toml", "rb") as file:
    needs = tomllib.load(file)["project"]["dependencies"]
least = next(re.match("torch *>= *([0-9.]+)$", need)[1] for need in needs if re.match("torch *>=", need))
version = importlib.metadata.version("torch")
release, rest = re.match("([0-9.]+)(.*)", version.partition("+")[0]).groups()
def numbers(text):
    return [int(number) for number in (text.strip(".").split(".") + ["0", "0"])[:3]]
early = bool(rest) and not rest.startswith("post")   # 2.6.0a0 comes before 2.6
if numbers(release) > numbers(least) or (numbers(release) == numbers(least) and not early):
    import torch
    print("\ntorch=" + version)
'
torch=$("$base" -c "$torch_here" 2>/dev/null | sed -n 's/^torch=//p')

if exists "$venv"; then
  mv "$venv" "$previous" 2>/dev/null || fail "cannot write to $PWD"
fi
# The mark comes before anything else, so that a killed set-up is told from an environment somebody made by hand.
if ! { mkdir "$venv" && printf '%s\n' $$ >"$unfinished"; } 2>/dev/null; then
  undo
  fail "cannot write to $PWD"
fi

if [ -n "$torch" ]; then set -- --system-site-packages; else set --; fi
if ! report=$("$base" -m venv --prompt stepe "$@" "$venv" 2>&1); then
  undo
  fail "$chosen cannot make an environment: $(printf '%s\n' "$report" | sed '/^ *$/d' | tail -n 1)"
fi

if [ -n "$torch" ]; then
  say "keeping the torch $torch that $chosen has (.venv sees its packages); installing the rest"
elif [ "$(uname -s)" = Linux ]; then
  say "installing the package and what it needs. pip's default torch for Linux is a CUDA build: some 3 GB to download"
  say "and 6 GB or more on disk. To avoid it, stop now (Ctrl-C) and point pip to a CPU build (about 200 MB) with"
  say "PIP_INDEX_URL, PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS or a pip.conf, or name a Python that has torch: PYTHON=..."
else
  say 'installing the package and what it needs: some 300 MB to download, most of it torch'
fi

if [ "$want" = dev ]; then package='.[dev]'; else package=.; fi
if ! { write_constraints && pip_install -e "$package" && stamp; }; then
  if exists "$previous"; then left='the earlier .venv is back in place'; else left='no .venv is left'; fi
  undo
  fail "pip could not install the package (its reason is above; see to the network or pip's index settings): $left"
fi

trap '' INT TERM HUP PIPE   # it is ready: a late Ctrl-C must not take it away
rm -rf "$scratch" "$unfinished"
retire_previous
say '.venv is ready'
