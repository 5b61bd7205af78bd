"""Builds the image of deploy/Dockerfile without a container engine or a registry, and starts Arranger from it.

Real: the Dockerfile, buildah with chroot isolation, a base of Debian's packages that mmdebstrap makes, the packages of
the lock file, a Redis server, etcd and kube-apiserver. Not real: the root file system isn't mounted read-only, because
chroot isolation can't do that. So the files of the container are compared before and after.
"""
