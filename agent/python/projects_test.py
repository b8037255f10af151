"""Whose a file is: of the project that trains, or of another one."""

import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import core_for_testing

core_for_testing.hooks_package()
from _traincheck import projects, source_files


class Projects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        self.addCleanup(self.forget)
        self.forget()

    def forget(self):
        projects._own_folders.cache_clear()
        projects._root_of.cache_clear()
        projects._resolved.cache_clear()

    def file(self, name, mark=None):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        if mark is not None:
            (self.folder / mark).touch()
        return str(path)

    def of_another(self, path, script, started_in):
        main = mock.Mock(__file__=script)
        with (
            mock.patch.dict(sys.modules, {"__main__": main}),
            mock.patch("os.getcwd", return_value=str(self.folder / started_in)),
        ):
            self.forget()
            return projects.is_of_another_project(path)

    def test_installed_from_its_folder(self):
        library = self.file("library/src/package/layers.py", "library/pyproject.toml")
        script = self.file("experiment/train.py")
        self.assertTrue(self.of_another(library, script, "experiment"))
        # Somebody works on the library.
        self.assertFalse(self.of_another(library, script, "library/src"))
        self.assertFalse(self.of_another(script, script, "experiment"))

    def test_kept_beside_it(self):
        script = self.file("experiment/tools/train.py", "experiment/setup.py")
        own = self.file("experiment/models/net.py")
        kept = self.file("experiment/third_party/net/net.py")
        self.file("experiment/third_party/net/setup.py")
        self.assertFalse(self.of_another(own, script, "experiment"))
        self.assertTrue(self.of_another(kept, script, "experiment"))

    def test_a_link_to_the_script(self):
        own = self.file("experiment/models/net.py", "experiment/setup.py")
        real = self.file("experiment/train.py")
        link = self.folder / "elsewhere" / "train.py"
        link.parent.mkdir()
        link.symlink_to(real)
        self.assertFalse(self.of_another(own, str(link), "elsewhere"))

    def test_no_script(self):
        cell = self.file("notes/one.py", "notes/setup.py")
        self.assertFalse(self.of_another(cell, None, "notes"))
        self.assertTrue(self.of_another(cell, None, "elsewhere"))

    def test_a_folder_that_is_gone(self):
        path = self.file("library/layers.py", "library/setup.py")
        self.forget()
        with mock.patch("os.getcwd", side_effect=FileNotFoundError):
            self.assertTrue(projects.is_of_another_project(path))


class SourceFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.addCleanup(source_files.forget)
        source_files.forget()

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def test_functions_and_owners(self):
        text = "class A:\n    if x:\n        y = 1\n    @w\n    def f(self): pass\n"
        text += "def g():\n    with a:\n        def h(): pass\n"
        file = source_files.file_of(self.file("a.py", text))
        self.assertEqual(set(file.functions), {1, 4, 6, 8})
        owner = file.owners[id(file.functions[4]["f"])]
        self.assertEqual(owner.name, "A")
        self.assertNotIn(id(file.functions[6]["g"]), file.owners)
        self.assertFalse(source_files.are_cut())

    def test_too_many_lines(self):
        long = self.file("long.py", "x = 1\n" * 15_000)
        other = self.file("other.py", "x = 1\n" * 6_000)
        short = self.file("short.py", "def f(): pass\n")
        self.assertTrue(source_files.file_of(long).functions)
        self.assertFalse(source_files.file_of(other).functions)
        self.assertTrue(source_files.are_cut())
        self.assertIn("f", source_files.file_of(short).functions[1])
        source_files.forget()
        self.assertFalse(source_files.are_cut())
        self.assertTrue(source_files.file_of(other).functions)

    def test_what_cannot_be_read(self):
        self.assertFalse(source_files.file_of("/nowhere.py").functions)
        self.assertFalse(source_files.file_of(self.file("b.py", "def f(:")).functions)


if __name__ == "__main__":
    unittest.main()
