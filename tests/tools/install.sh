#!/bin/sh
# Debian's browser and Prometheus, for the tests that drive a page and check alerts. Installs what is missing where this is root on a
# Debian or Ubuntu with apt-get, within a few minutes, and starts no service. Never fails: those tests skip with a reason instead.

wanted=""
command -v chromium >/dev/null 2>&1 || wanted="$wanted chromium"
command -v chromedriver >/dev/null 2>&1 || wanted="$wanted chromium-driver"
command -v promtool >/dev/null 2>&1 || wanted="$wanted prometheus"
[ -n "$wanted" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
	echo "Some tests will be skipped, for want of Debian's packages:$wanted"
	exit 0
fi

echo "Installing$wanted (for the tests of the dashboard and the alerts) ..."
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
install() {
	# shellcheck disable=SC2086
	timeout 240 apt-get install -qq -y --no-install-recommends -o DPkg::Lock::Timeout=60 $wanted </dev/null >/dev/null 2>&1
}
if ! install; then
	timeout 90 apt-get update -qq </dev/null >/dev/null 2>&1
	install || echo "They can't be installed here; the tests that need them are skipped."
fi
exit 0
