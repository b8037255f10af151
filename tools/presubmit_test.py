"""Each check of tools/presubmit finds a planted fault and leaves good code be."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "presubmit"))

import build_loads
import cpp_functions
import formatting
import layering
import module_names
import namespaces
import proto_comments
import sizes
import strict_types
from check_case_for_testing import CheckCase


class BuildLoadsTest(CheckCase):
    def test_rules_that_are_not_loaded_or_not_used(self):
        cc = '"@rules_cc//cc:defs.bzl"'
        found = self.found(
            build_loads,
            {
                "a/BUILD.bazel": f'load({cc}, "cc_test")\n# cc_library(\ncc_test(\n)\n',
                "b/BUILD.bazel": "package()\n\n[\n    cc_test(name = n)\n]\n",
                "c/BUILD.bazel": f'load({cc}, "cc_library", "cc_test")\ncc_test()\n',
                "d/BUILD.bazel": 'load("//x.bzl", "cc_test")\ncc_test()\n',
                "e.bzl": "def f():\n    native.cc_library()\n",
                "f.BUILD": f'load({cc}, "cc_library")\ncc_library(deps = ["cc_test"])\n',
                "g/BUILD.bazel": "sh_test()\npy_test()\n",
                "bazel/shims/h.bzl": "native.cc_test()\n",
            },
        )
        self.assertEqual(
            found,
            [
                ("b/BUILD.bazel", 4),
                ("c/BUILD.bazel", 1),
                ("d/BUILD.bazel", 2),
                ("e.bzl", 2),
                ("g/BUILD.bazel", 1),
                ("g/BUILD.bazel", 2),
            ],
        )


class FormattingTest(CheckCase):
    def test_cpp_and_python_as_the_tools_write_them(self):
        self.plant(".clang-format", "BasedOnStyle: Google\n")
        found = self.found(
            formatting,
            {
                "good.cc": "int main() { return 0; }\n",
                "bad.cc": "int x;\nint main() {return 0;}\n",
                "bad.c": "int   y;\n",
                "good.py": "x = [1, 2]\n",
                "bad.py": "x = [1,2]\n",
            },
        )
        self.assertCountEqual(found, [("bad.cc", 2), ("bad.c", 1), ("bad.py", 1)])

    def test_python_that_cannot_be_parsed(self):
        self.assertEqual(self.found(formatting, {"bad.py": "x = (\n"}), [("bad.py", 1)])


class LayeringTest(CheckCase):
    def line_found(self, name: str, path: str) -> bool:
        found = self.found(layering, {name: f'// x\n#include "{path}"\n'})
        (self.root / name).unlink()
        self.assertIn(found, ([], [(name, 2)]))
        return bool(found)

    def test_layers(self):
        for name, path, wrong in [
            ("base/a.cc", "server/b.h", True),
            ("base/a.cc", "proto/record_format.h", True),
            ("proto/a.h", "base/b.h", True),
            ("invariants/trace/a.h", "checker/b.h", True),
            ("invariants/trace/a.h", "proto/record_reader.h", False),
            ("checker/a.h", "inference/b.h", True),
            ("inference/a.h", "checker/b.h", True),
            ("checker/a.h", "invariants/sets/b.h", False),
            ("checker/a.h", "invariants/traincheck/b.h", True),
            ("checker/a.h", "invariants/testing/b.h", True),
            ("checker/a_test.cc", "invariants/testing/b.h", False),
            ("server/a.h", "inference/b.h", False),
            ("server/a.h", "ctl/b.h", True),
            ("ctl/a.h", "server/b.h", True),
            ("server/a.h", "invariants/trace/b.h", False),
            ("server/a.h", "invariants/traincheck/b.h", True),
            ("ctl/a.h", "invariants/traincheck/b.h", False),
            ("agent/relay/a.cc", "agent/ring/b.h", False),
            ("agent/relay/a.cc", "agent/capture/b.h", True),
            ("agent/ring/a.h", "agent/relay/b.h", True),
            ("agent/ring/a_test.cc", "invariants/testing/b.h", True),
            ("agent/ring/a.h", "base/b.h", True),
            ("agent/ring/a.h", "proto/step_rule.h", False),
            ("agent/ring/a.h", "proto/traincheck/v1/ingest.pb.h", True),
            ("tests/bench/a.cc", "server/b.h", False),
        ]:
            with self.subTest(name=name, path=path):
                self.assertEqual(self.line_found(name, path), wrong)

    def includes(self, user: str, used: str) -> bool:
        """May a floor of the engine include another?"""
        name, path = f"invariants/{user}/a.cc", f"invariants/{used}/b.h"
        return not self.line_found(name, path)

    def test_floors_of_the_engine(self):
        below = ["trace", "facts", "rules", "relations", "sets"]
        # Two upper floors side by side.
        for top in ("library", "traincheck"):
            floors = below + [top]
            for i, upper in enumerate(floors):
                for lower in floors[: i + 1]:
                    with self.subTest(upper=upper, lower=lower):
                        self.assertTrue(self.includes(upper, lower))
                        if upper != lower:
                            self.assertFalse(self.includes(lower, upper))
        self.assertFalse(self.includes("library", "traincheck"))
        self.assertFalse(self.includes("traincheck", "library"))

    def test_what_tests_of_the_engine_include(self):
        for floor in ("trace", "facts", "rules", "relations", "sets", "library"):
            with self.subTest(floor=floor):
                self.assertFalse(self.includes(floor, "testing"))
                test = f"invariants/{floor}/a_test.cc"
                self.assertFalse(self.line_found(test, "invariants/testing/b.h"))
        self.assertTrue(self.includes("testing", "trace"))
        for floor in ("facts", "rules", "sets", "library"):
            with self.subTest(floor=floor):
                self.assertFalse(self.includes("testing", floor))

    def test_relations_do_not_know_each_other(self):
        relations = "invariants/relations"
        for name, path, wrong in [
            ("a/a.cc", f"{relations}/a/b.h", False),
            ("a/a.cc", f"{relations}/b/b.h", True),
            ("a/a_test.cc", f"{relations}/b/b.h", True),
            ("a/a.cc", f"{relations}/registry.h", True),
            ("a/a_test.cc", f"{relations}/registry.h", False),
            ("a/a_test.cc", "invariants/testing/a.h", False),
            ("a/a.cc", "invariants/rules/a.h", False),
            ("a/a.cc", "invariants/sets/a.h", True),
            ("registry.cc", f"{relations}/a/a.h", False),
        ]:
            with self.subTest(name=name, path=path):
                found = self.line_found(f"{relations}/{name}", path)
                self.assertEqual(found, wrong)

    def test_no_file_stands_beside_the_floors(self):
        found = self.found(layering, {"invariants/a.h": "", "invariants/new/a.h": ""})
        self.assertEqual(found, [("invariants/a.h", 1), ("invariants/new/a.h", 1)])

    def test_folders_that_include_each_other(self):
        both = {
            "server/a/a.h": '#include "server/b/b.h"\n#include "server/b/c.h"\n',
            "server/b/b.h": "",
            "server/b/c.h": '\n#include "server/a/d.h"\n',
            "server/a/d.h": "",
            "server/b/b_test.cc": '#include "server/a/a.h"\n',
        }
        self.assertEqual(self.found(layering, both), [("server/b/c.h", 2)])
        self.assertEqual(self.found(layering, {"server/b/c.h": ""}), [])

    def test_libraries_end_where_they_should(self):
        for name, path, wrong in [
            ("server/ingest/ingest_service.cc", "grpcpp/grpcpp.h", False),
            ("server/ingest/session.cc", "grpcpp/grpcpp.h", True),
            ("server/a.h", "proto/traincheck/v1/control.grpc.pb.h", True),
            ("server/a.h", "proto/traincheck/v1/control.pb.h", False),
            ("server/server_test.cc", "grpcpp/grpcpp.h", False),
            ("server/traincheckd_main.cc", "grpcpp/server.h", False),
            ("base/credentials.h", "grpcpp/channel.h", False),
            ("base/logging.h", "grpcpp/channel.h", True),
            ("ctl/client.cc", "grpcpp/grpcpp.h", False),
            ("checker/a.h", "grpcpp/grpcpp.h", True),
            ("checker/a.h", "proto/traincheck/v1/control.pb.h", True),
            ("checker/a.h", "google/protobuf/message.h", True),
            ("server/store/a.cc", "rocksdb/db.h", False),
            ("server/runs/a.cc", "rocksdb/db.h", True),
        ]:
            with self.subTest(name=name, path=path):
                self.assertEqual(self.line_found(name, path), wrong)

    def test_the_agent_in_the_training_process(self):
        for name, path, wrong in [
            ("agent/ring/a.cc", "atomic", False),
            ("agent/ring/a.cc", "sys/mman.h", False),
            ("agent/ring/a.cc", "linux/futex.h", False),
            ("agent/ring/a.cc", "absl/strings/str_cat.h", True),
            ("agent/ring/a.cc", "gtest/gtest.h", True),
            ("agent/ring/a_test.cc", "gtest/gtest.h", False),
            ("agent/ring/a.cc", "Python.h", True),
            ("agent/preload/a.c", "Python.h", True),
            ("agent/capture/a.cc", "Python.h", False),
            ("agent/torch/a.cc", "ATen/ATen.h", True),
            ("agent/relay/a.cc", "absl/status/status.h", False),
        ]:
            with self.subTest(name=name, path=path):
                self.assertEqual(self.line_found(name, path), wrong)

    def test_paths_begin_at_the_root(self):
        self.plant("ctl/b.h", "")
        self.assertTrue(self.line_found("ctl/a.cc", "b.h"))
        self.assertFalse(self.line_found("ctl/a.cc", "ctl/b.h"))
        self.assertFalse(self.line_found("server/a.cc", "zstd.h"))


def function_text(lines: int, name: str = "int F()", first: str = "") -> str:
    return f"{name} {{{first}\n" + "  g();\n" * (lines - 2) + "}\n"


class SizesTest(CheckCase):
    def test_long_files(self):
        found = self.found(
            sizes,
            {
                "a.h": "int x;\n" * 251,
                "b.h": "int x;\n" * 250,
                "c.cc": "int x;\n" * 501,
                "d.cc": "int x;\n" * 500,
                "e.py": "x = 1\n" * 501,
                "f.cc": "// size: one table\n" + "int x;\n" * 500,
                "g.cc": "// size:\n" + "int x;\n" * 500,
            },
        )
        self.assertEqual(found, [("a.h", 1), ("c.cc", 1), ("e.py", 1), ("g.cc", 1)])

    def test_long_functions(self):
        found = self.found(
            sizes,
            {
                "a.cc": "int x;\n" + function_text(61),
                "b.cc": function_text(60) + function_text(60, "int G()"),
                "c.cc": "// size: one switch\n" + function_text(61),
                "d.cc": function_text(61, first="  // size: one switch"),
                "e.py": "def f():\n" + "    g()\n" * 60,
                "f.py": "def f():\n" + "    g()\n" * 59,
            },
        )
        self.assertEqual(found, [("a.cc", 2), ("e.py", 1)])

    def test_many_parameters(self):
        found = self.found(
            sizes,
            {
                "a.cc": "void F(int a, int b, int c, int d, int e, int f) {}\n",
                "b.cc": "void F(std::map<int, int> a, int b, int c, int d, int e) {}\n",
            },
        )
        self.assertEqual(found, [("a.cc", 1)])


class FindFunctionsTest(unittest.TestCase):
    def names(self, text: str) -> list:
        found = cpp_functions.find_functions(text)
        return [(f.name, f.parameters, f.first_line, f.last_line) for f in found]

    def test_members_constructors_and_operators(self):
        text = """namespace a {
class B final : public C<int> {
 public:
  explicit B(int x) : x_(x), y_{x, 1}, z_{} {
    f();
  }
  ~B() override = default;
  bool operator==(const B& other) const noexcept { return true; }

 private:
  auto Get(int a, std::function<void(int, int)> g) -> std::vector<int> {
    if (a) { return {}; }
  }
  int x_{3};
  std::function<void()> f_ = [] { g(); };
};
}  // namespace a
"""
        self.assertEqual(
            self.names(text),
            [
                ("B", 1, 4, 6),
                ("operator_", 1, 8, 8),
                ("Get", 2, 11, 13),
            ],
        )

    def test_braces_in_text_do_not_count(self):
        text = """#define OPEN {
int F(char a) {
  // }
  const char* s = "}" R"(})";
  return a == '}' + 1'000;
}
int table[] = {1, 2};
struct S s = {.x = F('{')};
extern "C" {
void G(void) {
}
}
"""
        self.assertEqual(self.names(text), [("F", 1, 2, 6), ("G", 0, 10, 11)])


class ProtoCommentsTest(CheckCase):
    def test_comments_behind_a_field(self):
        found = self.found(
            proto_comments,
            {
                "a.proto": "// fine\nmessage M {\n  // fine\n"
                '  string url = 1 [default = "http://x"];\n'
                "  int32 a = 2;  // not here\n  int32 b = 3; /* nor here */\n}\n"
            },
        )
        self.assertEqual(found, [("a.proto", 5), ("a.proto", 6)])


class StrictTypesTest(CheckCase):
    def test_what_has_no_type_and_what_has_another(self):
        self.plant("agent/python/mypy.ini", "[mypy]\nstrict = True\n")
        self.plant("agent/python/traincheck_core.pyi", "class Core:\n    A: int\n")
        found = self.found(
            strict_types,
            {
                "agent/python/hooks/good.py": "from traincheck_core import Core\n"
                "def f(core: Core) -> int:\n    return core.A\n",
                "agent/python/hooks/untyped.py": "def f(x):\n    return x\n",
                "agent/python/hooks/other.py": "from _traincheck import good\n"
                "def f(x: str) -> int:\n    return good.f(x)\n",
                "agent/preload/finder.py": "def f(x):\n    return x\n",
                "elsewhere.py": "def f(x):\n    return x\n",
            },
        )
        folder = "agent/python/hooks"
        self.assertEqual(
            sorted(found),
            [
                ("agent/preload/finder.py", 1),
                (f"{folder}/other.py", 3),
                (f"{folder}/untyped.py", 1),
            ],
        )


class ModuleNamesTest(CheckCase):
    def test_a_name_that_has_moved(self):
        found = self.found(
            module_names,
            {
                "tests/integration/harness.py": "def wait(x):\n    return x + 1\n",
                "tests/integration/one_test.py": "import harness\n"
                "def f(x):\n    return harness.wait(x).gone\n",
                "tests/integration/two_test.py": "import harness\n"
                "def f():\n    return harness.gone()\n",
                "tests/fault/three.py": "import harness\n\nharness.gone()\n",
                "tools/four.py": "def f():\n    return unknown\n",
                "tests/pipelines/each_a_program.py": "unknown()\n",
            },
        )
        self.assertEqual(
            sorted(found),
            [
                ("tests/fault/three.py", 3),
                ("tests/integration/two_test.py", 3),
                ("tools/four.py", 2),
            ],
        )


class NamespacesTest(CheckCase):
    def test_parts(self):
        shared, own = "namespace traincheck {\n", "namespace traincheck::agent {\n"
        for name, text, wrong in [
            ("base/a.h", shared, False),
            ("base/b.h", own, True),
            ("agent/ring/a.h", own, False),
            ("agent/ring/b.h", shared, True),
            ("server/a.cc", "namespace {\n}\n" + own, True),
            ("tests/fuzz/a.cc", own, False),
        ]:
            with self.subTest(name=name):
                self.assertEqual(bool(self.found(namespaces, {name: text})), wrong)
                (self.root / name).unlink()

    # What others call the same: a type of its own in a file, beside a named one.
    UNNAMED = "namespace traincheck {\nnamespace {\nstruct Call {};\n}\n}\n"

    def test_types_defined_twice(self):
        named = "namespace traincheck {\nclass Call final : A<B> {\n};\n}\n"
        found = self.found(
            namespaces,
            {
                "base/a.h": named,
                "base/b.h": named.replace("class", "// x\nenum class"),
                "checker/c.cc": self.UNNAMED,
            },
        )
        places = [("base/a.h", 2), ("base/b.h", 3), ("checker/c.cc", 3)]
        self.assertEqual(found, places)

    def test_types_that_may_have_one_name(self):
        own = "namespace traincheck::agent {\nstruct Call {};\n}\n"
        inside = "namespace traincheck {\nclass A {\n  struct Call {\n  };\n};\n}\n"
        function = "namespace traincheck {\nvoid F() {\n  struct Call {\n  };\n}\n}\n"
        declared = (
            "namespace traincheck {\nstruct Call;\nstruct Call MakeCall() {\n}\n}\n"
        )
        found = self.found(
            namespaces,
            {
                "agent/ring/a.h": own,
                "base/a.h": "namespace traincheck {\nstruct Call {};\n}\n",
                "base/inside.h": inside,
                "base/function.cc": function,
                "base/declared.h": declared,
                "base/a_test.cc": self.UNNAMED,
                "server/unnamed.cc": self.UNNAMED.replace("check {", "check::server {"),
                "server/again.cc": self.UNNAMED.replace("check {", "check::server {"),
            },
        )
        self.assertEqual(found, [])


if __name__ == "__main__":
    unittest.main()
