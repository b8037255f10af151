"""Pods of deploy/kubernetes as processes of a root of its own: what kubelet does with
volumes, secrets, users, variables, init containers and sidecars. All that is left
out: the network, the limits, the probes, images but traincheckd's.

    pod.py run MANIFEST              to its end; SIGTERM ends its containers
    pod.py exec MANIFEST COMMAND...  in the first container of a pod that runs
    pod.py secrets                   new contents reach the volumes

Everything is below $PODS: secrets/NAME and labels (a file `name=value` a line) are
read; volumes/ is written. $PODS/Containerfile describes the image. The command of an
image that is not traincheckd's is $TRAINING.
"""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

import image
import yaml

PODS = pathlib.Path(os.environ.get("PODS", "/pods"))


def objects(path: pathlib.Path) -> list:
    return [*yaml.safe_load_all(path.read_text())]


def write_files(folder: pathlib.Path, files: dict, mode: int, group) -> None:
    """As kubelet: names are links, and one rename changes all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f"..{os.urandom(4).hex()}"
    new.mkdir()
    for name, content in files.items():
        (new / name).write_bytes(content)
        (new / name).chmod(mode if group is None else mode | 0o440)
        if group is not None:
            os.chown(new / name, 0, group)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    old = (folder / "..data").resolve() if (folder / "..data").exists() else None
    (folder / "..next").symlink_to(new.name)
    (folder / "..next").rename(folder / "..data")
    if old:
        shutil.rmtree(old)


def secret_files(name: str) -> dict:
    return {p.name: p.read_bytes() for p in (PODS / "secrets" / name).iterdir()}


class Pod:
    """One pod of a manifest, whose containers are processes of this one."""

    def __init__(self, manifest: pathlib.Path):
        found = [v for v in objects(manifest) if "template" in v.get("spec", {})][0]
        self.folder = PODS / "volumes" / manifest.stem
        self.manifest = manifest
        self.template = found["spec"]["template"]["metadata"]
        self.spec = found["spec"]["template"]["spec"]
        self.claims = found["spec"].get("volumeClaimTemplates", [])
        self.image = image.read(PODS / "Containerfile")

    def fill_volumes(self) -> None:
        group = self.spec.get("securityContext", {}).get("fsGroup")
        for volume in self.spec["volumes"]:
            folder = self.folder / volume["name"]
            if "secret" in volume:
                files = secret_files(volume["secret"]["secretName"])
                write_files(folder, files, volume["secret"]["defaultMode"], group)
            elif "configMap" in volume:
                write_files(folder, self.config_files(volume), 0o644, group)
            elif not folder.exists():
                self.empty(folder, group)
        for claim in self.claims:
            self.empty(self.folder / claim["metadata"]["name"], group)

    def config_files(self, volume: dict) -> dict:
        names = self.manifest.parent.glob("*.yaml")
        maps = [v for path in names for v in objects(path) if v["kind"] == "ConfigMap"]
        name = volume["configMap"]["name"]
        data = next(m["data"] for m in maps if m["metadata"]["name"] == name)
        return {key: text.encode() for key, text in data.items()}

    @staticmethod
    def empty(folder: pathlib.Path, group) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
        if group is not None:
            os.chown(folder, 0, group)
            folder.chmod(0o2777)

    def environment(self, container: dict) -> dict:
        labels = dict(
            line.split("=", 1) for line in (PODS / "labels").read_text().splitlines()
        )
        ours = self.of_our_image(container)
        found = dict(self.image.environment if ours else {"PATH": os.environ["PATH"]})
        found["KUBERNETES_SERVICE_HOST"] = "192.0.2.1"
        for one in container.get("env", []):
            field = one.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            found[one["name"]] = one["value"] if "value" in one else labels[field]
        return found

    @staticmethod
    def of_our_image(container: dict) -> bool:
        return container["image"].startswith("traincheckd:")

    def command_of(self, container: dict) -> list:
        if not self.of_our_image(container):
            return shlex.split(os.environ["TRAINING"])
        first = container.get("command", self.image.entrypoint)
        return [*first, *container.get("args", [])]

    def started(self, container: dict, command=None, **extra) -> subprocess.Popen:
        """In a mount namespace with the container's volumes, as its user."""
        lines = []
        for mount in container["volumeMounts"]:
            source = self.folder / mount["name"] / mount.get("subPath", "")
            if not source.exists():
                raise FileNotFoundError(f"{source}: the pod does not run yet")
            target = pathlib.Path(mount["mountPath"])
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir(exist_ok=True) if source.is_dir() else target.touch()
            lines.append(f"mount --bind {source.resolve()} {target}")
            if mount.get("readOnly"):
                lines.append(f"mount -o remount,bind,ro {target}")
        context = {
            **self.spec.get("securityContext", {}),
            **container.get("securityContext", {}),
        }
        user, group = self.image.user if self.of_our_image(container) else (0, 0)
        user = (context.get("runAsUser", user), context.get("runAsGroup", group))
        groups = [context["fsGroup"]] if "fsGroup" in context else []
        inside = image.as_user(user, groups, command or self.command_of(container))
        lines.append(f"exec {shlex.join(inside)}")
        script = ["unshare", "--mount", "sh", "-ec", "\n".join(lines)]
        return subprocess.Popen(
            script, env=self.environment(container), cwd="/", **extra
        )

    def run(self) -> int:
        """The code of the first container that ended."""
        self.fill_volumes()
        sidecars = []
        for container in self.spec["initContainers"]:
            process = self.started(container)
            if container.get("restartPolicy") == "Always":
                sidecars.append(process)
            elif process.wait() != 0:
                return process.returncode
        main = [self.started(container) for container in self.spec["containers"]]
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: [p.terminate() for p in main])
        codes = [process.wait() for process in main]
        for process in sidecars:
            process.terminate()
            codes.append(process.wait())
        return next((code for code in codes if code != 0), 0)


def main(action: str, *words: str) -> int:
    if action == "secrets":
        for manifest in {path.stem for path in (PODS / "volumes").iterdir()}:
            Pod(PODS / f"manifests/{manifest}.yaml").fill_volumes()
        return 0
    pod = Pod(pathlib.Path(words[0]))
    if action == "run":
        return pod.run()
    return pod.started(pod.spec["containers"][0], [*words[1:]]).wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
