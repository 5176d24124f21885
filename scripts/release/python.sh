# Sets `python` to the system's, if it is new enough: a release contains it. scripts/run reads this for programs that need nothing installed.
# Debian's comes first: its security fixes come with apt. PYTHON names another.
python="${PYTHON:-}"
if [ -z "$python" ]; then
  for candidate in /usr/bin/python3 python3; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      python="$candidate"
      break
    fi
  done
fi
[ -n "$python" ] || { echo "needs Python 3.11 or newer (Debian: python3 python3-venv python3-dev)" >&2; exit 3; }
