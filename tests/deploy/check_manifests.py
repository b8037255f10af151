"""Checks deploy/kubernetes against the schemas of Kubernetes, Kubeflow's training
operator and Kubeflow's trainer, as their packages have them (manifests.sh installs
these).

Prints a line for each object; exit code 1 if one is wrong.
"""

import json
import pathlib
import sys

import kubeflow.training
import kubeflow_trainer_api.models
import kubernetes_validate
import yaml

_FOLDER = pathlib.Path("deploy/kubernetes")
_KUBERNETES = "1.29"  # the oldest with sidecars
# No package has these: Prometheus operator, and what only kubectl reads.
_WITHOUT_SCHEMA = {"ServiceMonitor", "Kustomization"}


class _Response:
    """What the client of the training operator takes for a server's answer."""

    def __init__(self, value: dict):
        self.data = json.dumps(value)


def _training_operator(value: dict) -> dict:
    api = kubeflow.training.ApiClient()
    model = api.deserialize(_Response(value), "KubeflowOrgV1PyTorchJob")
    return api.sanitize_for_serialization(model)


def _trainer(value: dict) -> dict:
    model = getattr(kubeflow_trainer_api.models, f"TrainerV1alpha1{value['kind']}")
    return json.loads(model.model_validate(value).model_dump_json(by_alias=True))


def _missing(value, understood, path: str = "") -> list:
    """What the model has left out: keys that it does not know."""
    if isinstance(value, dict):
        found = []
        for key, below in value.items():
            if not isinstance(understood, dict) or key not in understood:
                found.append(f"{path}.{key}")
            else:
                found += _missing(below, understood[key], f"{path}.{key}")
        return found
    if isinstance(value, list):
        pairs = zip(value, understood)
        return [
            m for i, (a, b) in enumerate(pairs) for m in _missing(a, b, f"{path}[{i}]")
        ]
    return []


def check(value: dict) -> str:
    """How the object was checked; raises for one that is wrong."""
    group = value["apiVersion"].split("/")[0]
    if value["kind"] in _WITHOUT_SCHEMA:
        return "not checked: no package has a schema"
    if group in ("kubeflow.org", "trainer.kubeflow.org"):
        read = _training_operator if group == "kubeflow.org" else _trainer
        unknown = _missing(value, read(value))
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}")
        return f"a {value['apiVersion']} {value['kind']}"
    kubernetes_validate.validate(value, _KUBERNETES, strict=True)
    return f"valid in Kubernetes {_KUBERNETES}"


def main() -> int:
    code = 0
    for path in sorted(_FOLDER.glob("*.yaml")):
        for value in yaml.safe_load_all(path.read_text()):
            try:
                said = check(value)
            except Exception as error:  # of one object; the others are checked too
                said, code = f"WRONG: {str(error).splitlines()[0]}", 1
            print(f"{path}: {value['kind']}: {said}")
    return code


if __name__ == "__main__":
    sys.exit(main())
