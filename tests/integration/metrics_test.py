"""The daemon's metrics, as Prometheus takes them: the page, the dashboard and the alert
rules, on a real training."""

import collections
import json
import os
import pathlib
import re
import resource
import subprocess
import unittest
import urllib.error
import urllib.parse
import urllib.request

import harness

SCRIPT = harness.SCRIPTS / "built_in.py"
OBSERVE = pathlib.Path("deploy/observe")
# Debian's.
PROMTOOL, PROMETHEUS = "/usr/bin/promtool", "/usr/bin/prometheus"


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=harness.PATIENCE_S) as answer:
        return answer.read().decode()


def samples(page: str) -> dict:
    """Value by name and labels: 'a{b="c"}'."""
    rows = [line.rsplit(" ", 1) for line in page.splitlines() if line[0] != "#"]
    return {name: float(value) for name, value in rows}


class MetricsCase(harness.TrainingCase):
    def serve(self, *options: str) -> str:
        """The URL of the pages of a daemon that serves them."""
        self.daemon_options = ("--metrics", "0", *options)
        self.start_daemon()
        log = self.daemon.log.read_text()
        [address] = re.findall(r"serving metrics address=(\S+)", log)
        return f"http://{address}"

    def train(self, run: str) -> None:
        done = self.monitored(
            SCRIPT, "broadcast_loss", options=("--run", run), TRAINCHECK_BUDGET="off"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.daemon.run_ended(run)


class Pages(MetricsCase):
    def test_what_a_training_does_to_them(self):
        url = self.serve()
        before = samples(get(f"{url}/metrics"))
        self.assertEqual(before['traincheckd_batches_total{fate="stored"}'], 0)
        self.train("r")
        page = get(f"{url}/metrics")
        after = samples(page)
        shown = self.daemon.ctl("runs", "show", "r")
        self.assertEqual(after["traincheckd_stored_records_total"], shown["records"])
        batches = after['traincheckd_batches_total{fate="stored"}']
        self.assertGreater(batches, 0)
        self.assertEqual(after["traincheckd_acknowledge_seconds_count"], batches)
        self.assertGreater(after["traincheckd_acknowledge_seconds_sum"], 0)
        self.assertEqual(after["traincheckd_check_behind_batches"], 0)
        found = self.daemon.ctl("violations", "list", "--run", "r")
        grades = collections.Counter(one["grade"] for one in found)
        for grade in ("alert", "advice"):
            for name in (
                "traincheckd_violations",
                "traincheckd_violations_found_total",
            ):
                counted = after[f'{name}{{grade="{grade}"}}']
                self.assertEqual(counted, grades[grade], name)
        for name in ("dropped_records_total", "lost_records_total", "waiting_batches"):
            self.assertEqual(after[f"traincheckd_{name}"], 0, name)
        self.assertEqual(after["traincheckd_running_runs"], 0)
        self.assertEqual(after["traincheckd_store_writable"], 1)
        # No name of a run, unless somebody asks for it.
        self.assertNotIn('run="', page)
        for probe in ("healthz", "readyz"):
            self.assertEqual(get(f"{url}/{probe}"), "ok\n")
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(f"{url}/nothing")
        self.assertEqual(refused.exception.code, 404)

    def test_a_store_that_refuses_writes_is_not_ready(self):
        url = self.serve()
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        # As a full disk: no file grows any more.
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (1, hard))
        done = self.monitored(
            harness.SCRIPTS / "single.py",
            options=("--run", "r", "--collect", "--drain-timeout", "1"),
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        with self.assertRaises(urllib.error.HTTPError) as refused:
            get(f"{url}/readyz")
        self.assertEqual(refused.exception.code, 503)
        self.assertNotEqual(refused.exception.read().strip(), b"")
        # It lives, and is not to be started again.
        self.assertEqual(get(f"{url}/healthz"), "ok\n")
        full = samples(get(f"{url}/metrics"))
        self.assertEqual(full["traincheckd_store_writable"], 0)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (hard, hard))
        self.daemon.run_ended("r")
        self.assertEqual(get(f"{url}/readyz"), "ok\n")
        after = samples(get(f"{url}/metrics"))
        self.assertEqual(after["traincheckd_store_writable"], 1)
        self.assertEqual(after["traincheckd_waiting_bytes"], 0)

    def test_runs_by_name_on_demand(self):
        url = self.serve("--metrics-runs")
        training = self.monitored_start(
            *(harness.SCRIPTS / "zoom.py", "--healthy", "--steps", "400"),
            options=("--run", "my-run", "--experiment", "e"),
        )
        name = 'traincheckd_run_last_step{run="my-run",experiment="e"}'

        def steps():
            self.assertIsNone(training.poll(), "the training has ended")
            return samples(get(f"{url}/metrics")).get(name)

        harness.wait_until(steps, "a step of the run")

    def test_a_port_that_is_taken_is_named(self):
        url = self.serve()
        address = url.removeprefix("http://")
        done = subprocess.run(
            [harness.DIST / "traincheckd", "--data-dir", self.folder / "other"]
            + ["--listen", "127.0.0.1:0", "--metrics", address],
            capture_output=True,
            text=True,
            timeout=harness.PATIENCE_S,
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"--metrics: cannot listen on {address}", done.stderr)


class Prometheus(MetricsCase):
    def scrape(self, url: str) -> str:
        """The URL of a Prometheus that scrapes the daemon each second."""
        config = self.folder / "prometheus.yml"
        config.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str((OBSERVE / "alerts.yml").resolve())],
                    "scrape_configs": [
                        {
                            "job_name": "traincheckd",
                            "static_configs": [
                                {"targets": [url.removeprefix("http://")]}
                            ],
                        }
                    ],
                }
            )
        )
        port, lock = harness.take_port()
        self.addCleanup(lock.close)
        log = open(self.folder / "prometheus.log", "wb")
        server = subprocess.Popen(
            [PROMETHEUS, f"--config.file={config}"]
            + [f"--storage.tsdb.path={self.folder / 'tsdb'}"]
            + [f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log,
            stderr=log,
        )
        self.addCleanup(log.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        return f"http://127.0.0.1:{port}"

    def query(self, prometheus: str, expression: str) -> list:
        where = f"{prometheus}/api/v1/query?"
        answer = get(where + urllib.parse.urlencode({"query": expression}))
        return json.loads(answer)["data"]["result"]

    def test_the_page_keeps_to_the_conventions(self):
        url = self.serve("--metrics-runs")
        self.train("r")
        done = subprocess.run(
            [PROMTOOL, "check", "metrics"],
            input=get(f"{url}/metrics"),
            capture_output=True,
            text=True,
            timeout=harness.PATIENCE_S,
        )
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    def test_each_metric_is_documented(self):
        url = self.serve("--metrics-runs")
        self.train("r")
        page = get(f"{url}/metrics")
        served = set(re.findall(r"^# TYPE (\S+)", page, re.M))
        text = pathlib.Path("docs/metrics.md").read_text()
        rows = "".join(re.findall(r"^\| `.*$", text, re.M))
        documented = set(re.findall(r"`((?:traincheckd|process)_\w+)`", rows))
        self.assertEqual(documented, served)

    def test_when_each_alert_fires(self):
        done = subprocess.run(
            [PROMTOOL, "test", "rules", "alerts_test.yml"],
            cwd=OBSERVE,
            capture_output=True,
            text=True,
            timeout=harness.PATIENCE_S,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        alerts = re.findall(r"- alert: (\w+)", (OBSERVE / "alerts.yml").read_text())
        tests = (OBSERVE / "alerts_test.yml").read_text()
        fired = re.findall(r"alertname: (\w+)\n.*\n\s+exp_alerts:\n", tests)
        self.assertEqual(sorted(alerts), sorted(fired))

    def test_queries_of_dashboard_and_alerts(self):
        url = self.serve()
        prometheus = self.scrape(url)

        def scraped():
            try:
                return self.query(prometheus, 'up{job="traincheckd"} == 1')
            except OSError:
                return None  # it is not up yet

        harness.wait_until(scraped, "the first scrape")
        self.train("r")
        # Rates need two scrapes.
        harness.wait_until(
            lambda: self.query(prometheus, "rate(traincheckd_stored_bytes_total[1m])"),
            "a rate",
        )
        dashboard = json.loads((OBSERVE / "grafana.json").read_text())
        for panel in dashboard["panels"]:
            for target in panel["targets"]:
                rows = self.query(prometheus, target["expr"])
                self.assertTrue(rows, f"{panel['title']}: {target['expr']} is empty")
        rules = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
        states = {rule["name"]: rule for group in rules for rule in group["rules"]}
        self.assertEqual({rule["health"] for rule in states.values()}, {"ok"})
        # All that an alert's expression names is there: none is silent because
        # of a name.
        for rule in states.values():
            for name in re.findall(r"(?:traincheckd_\w+|up)\b", rule["query"]):
                self.assertTrue(self.query(prometheus, name), name)

    def test_a_daemon_that_is_gone_is_an_alert(self):
        url = self.serve()
        prometheus = self.scrape(url)

        def pending():
            try:
                return self.query(prometheus, 'ALERTS{alertname="TraincheckdDown"}')
            except OSError:
                return None

        harness.wait_until(
            lambda: os.path.exists(self.folder / "tsdb" / "wal"), "Prometheus"
        )
        self.daemon.kill()
        harness.wait_until(pending, "the alert")


if __name__ == "__main__":
    unittest.main()
