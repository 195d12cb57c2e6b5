#!/bin/sh
# Makes the image from a program that is built already, without any base image: the Dockerfile's last stage over the same root file
# system, with the program and the libraries of this machine. Needs the Docker engine and no network.
#
# usage: config/container/image.sh PROGRAM TAG      (DOCKER: the docker program, default docker)
set -eu

if [ $# != 2 ]; then
  echo "usage: image.sh PROGRAM TAG" >&2
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
docker=${DOCKER:-docker}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM HUP

# The symbols are most of its size.
strip -o "$work/troupemq" "$1"
"$here/rootfs.sh" "$work/troupemq" "$work/context/rootfs"
# From the line that begins the last stage on: what an image is, stands once. COPY takes from the context what it takes there from a stage.
sed -n '/^FROM scratch$/,$p' "$here/../../Dockerfile" | sed 's/^COPY --from=build /COPY /' >"$work/context/Dockerfile"
DOCKER_BUILDKIT=0 "$docker" build --quiet --tag "$2" "$work/context"
