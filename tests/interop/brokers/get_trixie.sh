#!/usr/bin/env bash
# RabbitMQ 4 in a chroot: Debian's release after bookworm, with its package rabbitmq-server.
#
#   get_trixie.sh FOLDER
#
# Needs root, debootstrap, and Debian's packages from the network; takes about 700 MB and two minutes.
# Nothing is mounted and nothing is started: `rm -rf FOLDER` removes everything.
set -euo pipefail

folder=$1
if test -d "$folder"/usr/lib/rabbitmq/lib; then exit 0; fi
if ((EUID != 0)); then
    echo "$0 needs root, for a chroot; RabbitMQ 4 is left out" >&2
    exit 1
fi
if ! command -v debootstrap >/dev/null; then
    echo "$0 needs debootstrap: apt-get install debootstrap; RabbitMQ 4 is left out" >&2
    exit 1
fi

rm -rf "$folder"
mkdir -p "$(dirname "$folder")"
debootstrap --variant=minbase trixie "$folder" >"$folder.log" 2>&1 || {
    tail -5 "$folder.log" >&2
    exit 1
}
# Packages must not start what they install.
printf '#!/bin/sh\nexit 101\n' >"$folder"/usr/sbin/policy-rc.d
chmod 755 "$folder"/usr/sbin/policy-rc.d
DEBIAN_FRONTEND=noninteractive chroot "$folder" apt-get -qq install --no-install-recommends --yes \
    rabbitmq-server >>"$folder.log" 2>&1 || {
    tail -5 "$folder.log" >&2
    rm -rf "$folder"
    exit 1
}
rm "$folder"/usr/sbin/policy-rc.d
