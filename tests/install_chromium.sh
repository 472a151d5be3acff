#!/bin/sh
# Installs Debian's Chromium for the tests of the dashboard, where the machine has no browser that they can use.
# Never fails: without a browser these tests are skipped, and say so.
[ -n "$EVENBEAT_TEST_CHROMIUM" ] && exit 0
for name in chromium chromium-browser google-chrome google-chrome-stable; do
  command -v "$name" >/dev/null 2>&1 && exit 0
done

advice() {
  echo "No Chromium found: the tests of the dashboard will be skipped." >&2
  echo "Debian: apt install chromium. Elsewhere name its program: EVENBEAT_TEST_CHROMIUM=/path/to/chromium" >&2
  exit 0
}

command -v apt-get >/dev/null 2>&1 || advice
# On Ubuntu the package is a stub that installs a snap.
grep -qs '^ID=debian' /etc/os-release || advice
if [ "$(id -u)" = 0 ]; then
  as_root=
elif sudo -n true 2>/dev/null; then
  as_root="sudo -n"
else
  advice
fi
echo "Installing Debian's Chromium for the tests of the dashboard …"
install="$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium"
$install >/dev/null 2>&1 || { $as_root apt-get update -qq && $install >/dev/null; } || advice
