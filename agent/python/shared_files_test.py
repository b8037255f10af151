"""Files that several ranks save to, said by stores of two ranks that are one process."""

import io
import os
import pathlib
import sys
import tempfile
import types
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase
from _traincheck.shared_files import SharedFiles


class Files(HooksCase):
    def setUp(self):
        super().setUp()
        self.store = {}
        self.rank = 0
        self.world = 2
        self.host = "one"
        self.steps, self.collectives = [0, 0], [0, 0]
        moment = types.SimpleNamespace(
            steps_begun=lambda: self.steps[self.rank],
            collectives=lambda: self.collectives[self.rank],
        )
        self.ranks = [SharedFiles(CORE, moment, moment) for _ in "ab"]
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        patches = {
            "torch.distributed.get_rank": lambda *_: self.rank,
            "torch.distributed.get_world_size": lambda *_: self.world,
            "torch.distributed.is_initialized": lambda: self.world > 0,
            "socket.gethostname": lambda: self.host,
            "_traincheck.run_agreement._agree_in_start": self.store.setdefault,
        }
        for name, stand_in in patches.items():
            patch = unittest.mock.patch(name, stand_in)
            patch.start()
            self.addCleanup(patch.stop)

    def saves(self, rank, path):
        self.rank = rank
        return self.ranks[rank].saves(path)

    def test_one_file(self):
        path = self.folder / "model.pt"
        self.assertEqual(self.saves(1, str(path)), 0.0)
        self.assertEqual(self.saves(0, path), 1.0)

    def test_one_file_by_two_names(self):
        path, link = self.folder / "model.pt", self.folder / "last"
        link.symlink_to(self.folder)
        self.assertEqual(self.saves(0, path), 0.0)
        self.assertEqual(self.saves(1, link / "model.pt"), 1.0)

    def test_each_save(self):
        path = str(self.folder / "model.pt")
        self.saves(0, path)
        found = []
        for _ in "abc":
            found.append(self.saves(1, path))
            self.steps = [count + 4 for count in self.steps]
        self.assertEqual(found, [1.0] * 3)
        self.assertEqual(len(self.store), 1)

    def test_a_file_that_is_handed_on(self):
        path = str(self.folder / "model.pt")
        self.saves(0, path)
        self.collectives[1] += 1  # the others have waited
        self.assertEqual(self.saves(1, path), 0.0)
        self.steps[0] += 4
        self.assertEqual(self.saves(0, path), 0.0)

    def test_a_file_of_each_rank(self):
        found = [self.saves(rank, self.folder / f"{rank}.pt") for rank in (0, 1)]
        self.assertEqual(found, [0.0, 0.0])

    def test_files_of_two_hosts(self):
        path = str(self.folder / "model.pt")
        self.saves(0, path)
        self.host = "another"
        self.assertEqual(self.saves(1, path), 0.0)

    def test_what_is_not_a_file(self):
        for path in (io.BytesIO(), os.devnull, None):
            self.assertIsNone(self.saves(0, path))
            self.assertIsNone(self.saves(1, path))

    def test_a_rank_alone(self):
        for self.world in (0, 1):
            self.assertIsNone(self.saves(0, str(self.folder / "model.pt")))

    def test_many_files(self):
        found = [self.saves(0, str(self.folder / str(i))) for i in range(70)]
        self.assertEqual(found.count(0.0), 64)
        self.assertEqual(found[64:], [None] * 6)


if __name__ == "__main__":
    unittest.main()
