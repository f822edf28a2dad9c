#!/bin/sh
# The first program of a runner's container, as root: gives the container's cgroup to the runner's user, if it is writable, so
# that each agent gets a cgroup of its own; then becomes the runner, with no more capabilities than it needs to start agents
# as their user, and to end them.
set -eu
cgroup=${CGROUP:-/sys/fs/cgroup}
if [ -f "$cgroup/cgroup.procs" ] && [ -w "$cgroup/cgroup.procs" ]; then
    chown gateway "$cgroup" "$cgroup/cgroup.procs" "$cgroup/cgroup.subtree_control" || echo "agents get no cgroups" >&2
fi
exec setpriv --reuid=gateway --regid=gateway --init-groups --no-new-privs \
    --inh-caps=+setuid,+setgid,+kill --ambient-caps=+setuid,+setgid,+kill cursor-gateway "$@"
