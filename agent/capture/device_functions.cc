#include <optional>
#include <vector>

#include "agent/capture/argument_parsing.h"
#include "agent/capture/device_states.h"
#include "agent/capture/module_functions.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

PyObject* CpuIsDevice(PyObject*, PyObject*) {
  return PyBool_FromLong(DeviceStates::Get().cpu_is_device_for_testing());
}

// For analyses of values (a loss's graph): the copies come later, under the
// number that is returned; 0: there will be none.
PyObject* CopyToHost(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"tensors", nullptr};
  PyObject* tensors;
  if (!Parse(args, kwargs, "O", names, &tensors)) return nullptr;
  const Py_ssize_t count = PySequence_Size(tensors);
  if (count < 0) return nullptr;
  DeviceStates& devices = DeviceStates::Get();
  if (!devices.wanted()) return PyLong_FromLong(0);
  const TorchApi::WithoutOverrides direct;
  std::vector<DeviceView> views;
  for (Py_ssize_t i = 0; i < count; ++i) {
    const Ref tensor(PySequence_GetItem(tensors, i));
    if (!tensor) return nullptr;
    std::optional<DeviceView> view;
    if (TorchApi::IsTensor(tensor.get())) {
      view = DeviceView::Of(tensor.get(), devices.cpu_is_device_for_testing());
    }
    // All or none: they are copied by one launch and come together.
    if (!view) return PyLong_FromLong(0);
    views.push_back(*std::move(view));
  }
  return PyLong_FromUnsignedLongLong(devices.Copy(views));
}

// (number, contents), where contents is None if they never come.
Ref AsTuple(const DeviceStates::Copies& copies) {
  Ref contents = Ref::Borrow(Py_None);
  if (copies.came) {
    contents = Ref(PyList_New(0));
    for (const std::string& content : copies.contents) {
      const Ref bytes(PyBytes_FromStringAndSize(
          content.data(), static_cast<Py_ssize_t>(content.size())));
      if (!contents || !bytes ||
          PyList_Append(contents.get(), bytes.get()) != 0) {
        return Ref();
      }
    }
  }
  return Ref(Py_BuildValue("(KO)", copies.number, contents.get()));
}

// Polls first, so that a hook which waits for copies gets them at the next
// opportunity.
PyObject* CopiesFunction(PyObject*, PyObject*) {
  DeviceStates& devices = DeviceStates::Get();
  devices.Poll();
  Ref list(PyList_New(0));
  for (const DeviceStates::Copies& copies : devices.TakeCopies()) {
    const Ref tuple = AsTuple(copies);
    if (!list || !tuple || PyList_Append(list.get(), tuple.get()) != 0) {
      return nullptr;
    }
  }
  return list.Release();
}

}  // namespace

PyMethodDef kDeviceFunctions[] = {
    {"cpu_is_device", CpuIsDevice, METH_NOARGS, nullptr},
    WithKeywords("copy_to_host", CopyToHost),
    {"copies", CopiesFunction, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
