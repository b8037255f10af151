"""Writes the dashboard as a ConfigMap, which Grafana's sidecar finds by its label.

    python3 deploy/observe/make_configmap.py

From grafana.json beside it into deploy/kubernetes/dashboard.yaml.
"""

import pathlib
import sys

_HEAD = """\
# deploy/observe/grafana.json, by make_configmap.py there. Grafana's sidecar takes
# ConfigMaps with this label (its chart: sidecar.dashboards.enabled).
apiVersion: v1
kind: ConfigMap
metadata:
  name: traincheckd-dashboard
  namespace: traincheck
  labels:
    app.kubernetes.io/name: traincheckd
    grafana_dashboard: "1"
data:
  traincheckd.json: |
"""
_HERE = pathlib.Path(__file__).parent


def configmap(dashboard: str) -> str:
    """The manifest whose data is this text."""
    lines = dashboard.splitlines(keepends=True)
    return _HEAD + "".join(f"    {line}" if line.strip() else line for line in lines)


def main() -> int:
    text = configmap((_HERE / "grafana.json").read_text())
    (_HERE / "../kubernetes/dashboard.yaml").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
