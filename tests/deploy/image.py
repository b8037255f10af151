"""What a Containerfile says, done in a root of its own without any container.

    image.py build FILE CONTEXT         COPY and RUN, in this root
    image.py run FILE [OPTION...]       ENTRYPOINT with CMD, or with the options
    image.py exec FILE COMMAND...       a command as USER with ENV
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


@dataclasses.dataclass
class Image:
    """The instructions of a Containerfile that matter to a process."""

    steps: list  # (COPY or RUN, text)
    user: tuple = (0, 0)
    environment: dict = dataclasses.field(default_factory=lambda: {"PATH": _PATH})
    entrypoint: list = dataclasses.field(default_factory=list)
    cmd: list = dataclasses.field(default_factory=list)


def read(path: pathlib.Path) -> Image:
    """Of instructions that it does not know it makes an error."""
    text = re.sub(r"(?m)^#.*\n", "", path.read_text()).replace("\\\n", " ")
    image = Image(steps=[])
    for line in filter(None, map(str.strip, text.splitlines())):
        word, rest = line.split(None, 1)
        if word in ("COPY", "RUN"):
            image.steps.append((word, rest))
        elif word == "USER":
            image.user = tuple(map(int, rest.split(":")))
        elif word == "ENV":
            image.environment.update([rest.split("=", 1)])
        elif word in ("ENTRYPOINT", "CMD"):
            setattr(image, word.lower(), json.loads(rest))
        elif word not in ("FROM", "VOLUME", "EXPOSE"):
            raise ValueError(f"{path}: {word} is not known here")
    return image


def build(image: Image, context: pathlib.Path) -> None:
    """COPY and RUN, in this root."""
    for word, text in image.steps:
        if word == "RUN":
            subprocess.run(["sh", "-ec", text], check=True, env=image.environment)
            continue
        *patterns, target = text.split()
        for pattern in patterns:
            found = [*context.glob(pattern)]
            if not found:
                raise FileNotFoundError(f"COPY {pattern}: not in {context}")
            for path in found:
                shutil.copy(path, target)


def as_user(user: tuple, groups: list, command: list) -> list:
    """The command as this user; all but root lose their capabilities."""
    number, group = user
    joined = ",".join(map(str, groups))
    return [
        *("setpriv", "--reuid", str(number), "--regid", str(group)),
        *(["--groups", joined] if groups else ["--clear-groups"]),
        *("--no-new-privs", "--", *command),
    ]


def main(action: str, file: str, *words: str) -> None:
    image = read(pathlib.Path(file))
    if action == "build":
        return build(image, pathlib.Path(words[0]))
    started = [*image.entrypoint, *(words or image.cmd)]
    command = as_user(image.user, [], started if action == "run" else [*words])
    os.chdir("/")
    os.execvpe(command[0], command, image.environment)


if __name__ == "__main__":
    main(*sys.argv[1:])
