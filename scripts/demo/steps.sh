# What the demonstrations share: sourced, with the name of the demonstration in $demo and its arguments. A step is a command as a user
# types it; its exit code and facts of what it prints are checked, and the first that differs ends the demonstration.
set -euo pipefail
quiet="${1:-}"
work="$(mktemp -d)"
export XDG_STATE_HOME="$work/state"
ended() { :; } # what a demonstration has to stop
trap 'ended; rm -rf "$work"' EXIT
interpreter="${SNAPREBUILD_PYTHON:-.venv/bin/python}" # one that has the package
[ -n "${SNAPREBUILD_PYTHON:-}" ] || bash scripts/setup
steps=0

step() { # TITLE EXIT_CODE FACT... -- COMMAND...
  local title="$1" expected="$2" facts=() code=0 fact shown
  shift 2
  while [ "$1" != "--" ]; do facts+=("$1"); shift; done
  shift
  steps=$((steps + 1))
  shown="${*//$work\//}" # without the directory that is gone afterwards
  printf '\n== %d. %s\n$ %s\n' "$steps" "$title" "$shown"
  "$@" >"$work/out" 2>&1 || code=$?
  [ -n "$quiet" ] || sed "s#$work/##g" "$work/out"
  [ "$code" = "$expected" ] || { cat "$work/out" >&2; echo "$demo: exit code $code, expected $expected" >&2; exit 1; }
  # Wherever its lines are wrapped.
  tr -s '\n ' ' ' <"$work/out" >"$work/words"
  for fact in "${facts[@]}"; do
    grep -qE -- "$fact" "$work/words" || { cat "$work/out" >&2; echo "$demo: nothing printed matches: $fact" >&2; exit 1; }
  done
}
python() { "$interpreter" "$@"; }
snaprebuild() { "$interpreter" -m snaprebuild "$@"; }
