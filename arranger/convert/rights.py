"""What the user who applies a TYJob needs a right of its own to, which nobody has until an administrator gives it.

The same rules as those of the admission policies (`deploy/base/policies.yaml`): pods with a part of their node, and
pods with a PriorityClass.
"""

from collections.abc import Iterator

from arranger.convert.templates import Json, Template

#: The capabilities that Kubernetes' baseline standard allows.
BASELINE = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD"}
    | {"NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)


def host_access(template: Template) -> list[str]:
    """The paths of the fields that give pods access to their nodes."""
    spec, path = template.spec, f"{template.path}.spec"
    found = [f"{path}.{name}" for name in ("hostNetwork", "hostPID", "hostIPC") if spec.get(name)]
    if _host_process(spec):
        found.append(f"{path}.securityContext.windowsOptions.hostProcess")
    found += [f"{path}.volumes[{n}].hostPath" for n, of in enumerate(spec.get("volumes") or ()) if of.get("hostPath")]
    for where, container in template.containers():
        found += _of_a_container(where, container)
    return found


def _of_a_container(path: str, container: Json) -> Iterator[str]:
    for number, port in enumerate(container.get("ports") or ()):
        if port.get("hostPort"):
            yield f"{path}.ports[{number}].hostPort"
    context = container.get("securityContext") or {}
    if context.get("privileged"):
        yield f"{path}.securityContext.privileged"
    if context.get("procMount") == "Unmasked":
        yield f"{path}.securityContext.procMount"
    if _host_process(container):
        yield f"{path}.securityContext.windowsOptions.hostProcess"
    if not BASELINE.issuperset((context.get("capabilities") or {}).get("add") or ()):
        yield f"{path}.securityContext.capabilities.add"


def _host_process(of: Json) -> bool:
    options = (of.get("securityContext") or {}).get("windowsOptions") or {}
    return bool(options.get("hostProcess"))
