# Makes .venv-release, with what scripts/release/locked names and nothing else, and sets `python` to its interpreter: scripts/run reads this.
# It needs a compiler, Python's headers, zlib's static library, binutils, dpkg, and the package index that pip is set up for.
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for tool in cc ldd readelf strip dpkg; do
  command -v "$tool" >/dev/null || { echo "a release needs $tool (Debian: gcc libc6-dev binutils dpkg)" >&2; exit 3; }
done
for archive in libz.a:zlib1g-dev libc.a:libc6-dev; do
  [ -e "$(cc -print-file-name="${archive%:*}")" ] || { echo "a release needs ${archive%:*} (Debian: ${archive#*:})" >&2; exit 3; }
done
. scripts/release/python.sh
"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' ||
  { echo "a release needs Python.h of $python (Debian: python3-dev)" >&2; exit 3; }

identity="$("$python" -c 'import os, sys; print(sys.version, os.path.realpath(sys.executable))'; cat scripts/release/locked/*.txt)"
exec 9>".venv.lock"
if command -v flock >/dev/null 2>&1; then flock 9; fi
if [ "$(cat .venv-release/made-from 2>/dev/null)" != "$identity" ]; then
  echo "scripts/release/make_release.py: the build environment ..." >&2
  rm -rf .venv-release
  "$python" -m venv .venv-release
  install=(.venv-release/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes)
  # Tools depend on packages of the other lock; pip checks the whole in the second step.
  "${install[@]}" --no-deps --requirement scripts/release/locked/tools.txt
  "${install[@]}" --use-pep517 --no-build-isolation --requirement scripts/release/locked/bundled.txt --requirement scripts/release/locked/tools.txt
  printf '%s\n' "$identity" >.venv-release/made-from
fi
exec 9>&-
export PATH="$PWD/.venv-release/bin:$PATH"
python="$PWD/.venv-release/bin/python"
