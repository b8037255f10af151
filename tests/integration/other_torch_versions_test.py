"""The agent's core loads into every torch that is installed beside the pinned one.

tools/torch_versions.sh --all installs them.
"""

import unittest

from torch_versions_test import OLDEST, VersionCase, installed


class OtherVersions(VersionCase):
    def test_all_that_are_installed(self):
        versions = installed()
        self.assertIn(OLDEST, versions)
        self.assertGreater(len(versions), 1, versions)
        for version, python in versions.items():
            with self.subTest(version=version):
                self.assertEqual(self.check(python), version)


if __name__ == "__main__":
    unittest.main()
