#!/bin/sh
# Lays out the root file system of the container image: the program, exactly the libraries it needs, its configuration, empty folders.
# No shell, no package manager, nothing else. The Dockerfile calls it, and `make image` for a program that is built already.
#
# usage: config/container/rootfs.sh PROGRAM DIRECTORY      (DIRECTORY is made and must be empty)
set -eu

if [ $# != 2 ]; then
  echo "usage: rootfs.sh PROGRAM DIRECTORY" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
program=$1
root=$2

if [ ! -x "$program" ]; then
  echo "rootfs.sh: no program at $program; build it with: cargo build --release --bin troupemq" >&2
  exit 2
fi
mkdir -p "$root"
if [ -n "$(ls -A "$root")" ]; then
  echo "rootfs.sh: $root is not empty" >&2
  exit 2
fi
# Whoever lays it out, the broker's user reads it.
umask 022

install -D -m 755 "$program" "$root/usr/local/bin/troupemq"
libraries=$(ldd "$program") || libraries=
if echo "$libraries" | grep -q 'not found'; then
  echo "rootfs.sh: a library of $program is missing here:" >&2
  echo "$libraries" | grep 'not found' >&2
  exit 1
fi
# A program that is linked statically names none.
for library in $(echo "$libraries" | grep -o '/[^ ]*'); do
  install -D -m 755 "$(readlink -f "$library")" "$root$library"
done

mkdir -p "$root/etc" "$root/tmp" "$root/opt/hivemq/conf" "$root/opt/hivemq/data" "$root/opt/hivemq/log"
chmod 1777 "$root/tmp"
# Of the group 0 and open to it: any user of that group can run the image, as OpenShift wants it; volumes take these rights over.
chmod 775 "$root/opt/hivemq/data" "$root/opt/hivemq/log"
echo 'root:x:0:0::/:/sbin/nologin' >"$root/etc/passwd"
echo 'troupemq:x:10000:0::/opt/hivemq:/sbin/nologin' >>"$root/etc/passwd"
echo 'root:x:0:' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
# For `troupemq bench --tls`, where there are some.
if [ -f /etc/ssl/certs/ca-certificates.crt ]; then
  install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
fi
install -m 644 "$here/config.xml" "$root/opt/hivemq/conf/config.xml"
