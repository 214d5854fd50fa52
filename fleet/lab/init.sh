#!/bin/sh
# PID 1 of a lab node, in fresh mount, PID, UTS, IPC and network namespaces:
# builds the node's root file system, starts its services and becomes tini.
#
#   init.sh NAME FOLDER HIDDEN...
#
# FOLDER has disk.img (ext4), seed.tar (the files that make this node itself) and ctl/ (logs, shown to the node as
# /run/fleetlab). HIDDEN are paths of the host that the node must not have.
set -eu
name=$1 folder=$2
shift 2
disk=$folder/disk root=$folder/root

# /proc is still the host's here, so this is the pid that the host sees.
read -r stat </proc/self/stat
read -r boot </proc/sys/kernel/random/boot_id
echo "$boot $stat" >"$folder/init.new"
mv "$folder/init.new" "$folder/init"

echo "$name" >/proc/sys/kernel/hostname
# -o loop: the kernel frees the device when this namespace ends.
mount -o loop,noatime "$folder/disk.img" "$disk"
mkdir -p "$disk/upper" "$disk/work" "$disk/docker"

# A character device 0/0 in the upper layer is a whiteout: the host's file is not there, and no umount brings it back.
shadow_folder() { # PATH: the same folder in the upper layer
    [ -d "$disk/upper$1" ] && return
    shadow_folder "$(dirname "$1")"
    mkdir "$disk/upper$1"
    chmod --reference="$1" "$disk/upper$1"
    chown --reference="$1" "$disk/upper$1"
}
if [ ! -e "$disk/hidden" ]; then
    for path in "$@"; do
        [ -e "$path" ] || continue
        shadow_folder "$(dirname "$path")"
        [ -e "$disk/upper$path" ] || mknod "$disk/upper$path" c 0 0
    done
    touch "$disk/hidden"
fi

mount -t overlay "$name" -o "lowerdir=/,upperdir=$disk/upper,workdir=$disk/work" "$root"
cd "$root"
mkdir -p proc sys dev run mnt srv home root tmp var/tmp var/lib/docker etc/docker
chmod 700 root
chmod 1777 tmp var/tmp
mount --bind "$disk/docker" var/lib/docker # the engine's overlay2 does not work on an overlay
umount "$disk"
mount -t proc proc proc
mount -t sysfs sysfs sys # this network namespace's /sys/class/net
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount -t tmpfs dev dev -o mode=755
mknod -m 666 dev/null c 1 3
mknod -m 666 dev/zero c 1 5
mknod -m 666 dev/full c 1 7
mknod -m 666 dev/random c 1 8
mknod -m 666 dev/urandom c 1 9
mknod -m 666 dev/tty c 5 0
mkdir dev/pts dev/shm dev/mqueue
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666,mode=620,gid=5
mount -t tmpfs shm dev/shm -o mode=1777
mount -t mqueue mqueue dev/mqueue
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
ln -s fd/0 dev/stdin
ln -s fd/1 dev/stdout
ln -s fd/2 dev/stderr
mount -t tmpfs run run -o mode=755
mkdir run/fleetlab run/sshd run/lock
mount --bind "$folder/ctl" run/fleetlab
tar --extract --preserve-permissions --numeric-owner --file "$folder/seed.tar"

pivot_root . mnt
cd /
umount -l /mnt
lab-sshd
lab-dockerd
exec "$(command -v tini || command -v docker-init)" -- sleep infinity
