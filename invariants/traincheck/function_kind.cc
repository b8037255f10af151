#include "invariants/traincheck/function_kind.h"

#include <fnmatch.h>

#include <algorithm>

#include "absl/strings/match.h"

namespace traincheck {

namespace {

// Which functions a row is for: a free function may end in ".step" or
// ".forward", too.
enum class Of { kAny, kMethods };

struct FunctionRow {
  const char* pattern;  // as of a shell; the first that fits decides
  Of of;
  const char* category;
  const char* role;  // its own name is no role of a function; "": none
};

// Methods of base classes that serve as roles: a rule on one of them concerns
// the method of every class that stands below.
constexpr char kForward[] = "torch.nn.modules.module.Module.forward";
constexpr char kStep[] = "torch.optim.optimizer.Optimizer.step";
constexpr char kZeroGrad[] = "torch.optim.optimizer.Optimizer.zero_grad";
constexpr char kNext[] =
    "torch.utils.data.dataloader._BaseDataLoaderIter.__next__";
constexpr char kIter[] = "torch.utils.data.dataloader.DataLoader.__iter__";

constexpr FunctionRow kFunctions[] = {
    // Modules.
    {"*.forward", Of::kMethods, "forward", kForward},
    {"torch.nn.modules.module.Module.train", Of::kMethods, "train_mode", ""},
    {"torch.nn.modules.module.Module.eval", Of::kMethods, "train_mode", ""},
    {"torch.nn.modules.module.Module.zero_grad", Of::kMethods, "zero_grad", ""},
    {"torch.nn.modules.module.Module.state_dict", Of::kMethods, "state_dict",
     ""},
    {"torch.nn.modules.module.Module.load_state_dict", Of::kMethods,
     "load_state_dict", ""},
    {"torch.nn.parallel.distributed.DistributedDataParallel.__init__",
     Of::kMethods, "wrap", ""},
    // In the packages of optimizers, but not optimizers: these rows keep them
    // from the next ones.
    {"torch.optim.lr_scheduler.*", Of::kAny, "scheduler", "schedule"},
    {"torch.optim.swa_utils.AveragedModel.update_parameters", Of::kMethods,
     "module_method", "average"},
    {"torch.optim.swa_utils.*", Of::kAny, "", ""},
    // Optimizers.
    {"torch.optim.optimizer.Optimizer.__init__", Of::kMethods, "optimizer_init",
     ""},
    {"torch.optim.optimizer.Optimizer.add_param_group", Of::kMethods,
     "optimizer_method", ""},
    {"torch.optim.*.step", Of::kMethods, "optimizer_step", kStep},
    {"torch.optim.*.zero_grad", Of::kMethods, "zero_grad", kZeroGrad},
    {"torch.optim.*.state_dict", Of::kMethods, "state_dict", ""},
    {"torch.optim.*.load_state_dict", Of::kMethods, "load_state_dict", ""},
    {"apex.optimizers.*.step", Of::kMethods, "optimizer_step", kStep},
    {"bitsandbytes.optim.*.step", Of::kMethods, "optimizer_step", kStep},
    {"deepspeed.ops.*.step", Of::kMethods, "optimizer_step", kStep},
    {"transformers.optimization.*.step", Of::kMethods, "optimizer_step", kStep},
    // Gradients.
    {"torch.Tensor.backward", Of::kAny, "backward", ""},
    {"torch.autograd.backward", Of::kAny, "backward", ""},
    {"torch.nn.utils.clip_grad.clip_grad_*", Of::kAny, "clip_grad", ""},
    {"torch.nn.utils.clip_grad.*", Of::kAny, "clip_grad", "clip"},
    {"torch.*amp.grad_scaler.GradScaler.*", Of::kMethods, "scaler", "scaler"},
    {"torch.utils.checkpoint.checkpoint", Of::kAny, "checkpoint", ""},
    // Data. TrainCheck wraps no __iter__ and no __next__, but what they call.
    {"torch.utils.data.dataloader.DataLoader._get_iterator", Of::kMethods,
     "loader_iter", kIter},
    {"torch.utils.data.dataloader.DataLoader.__iter__", Of::kMethods,
     "loader_iter", ""},
    {"torch.utils.data.dataloader._*Iter._next_data", Of::kMethods,
     "loader_next", kNext},
    {"torch.utils.data.dataloader._*Iter.__next__", Of::kMethods, "loader_next",
     kNext},
    {"torch.utils.data._utils.fetch.*.fetch", Of::kMethods, "fetch", ""},
    {"torch.utils.data._utils.collate.default_*", Of::kAny, "data", "collate"},
    {"torch.utils.data.distributed.DistributedSampler.*", Of::kMethods, "data",
     "sampler"},
    // Groups of processes.
    {"torch.distributed.distributed_c10d.init_process_group", Of::kAny,
     "init_process_group", ""},
    {"torch.distributed.distributed_c10d.destroy_process_group", Of::kAny,
     "destroy_process_group", ""},
    {"torch.distributed.distributed_c10d.new_group", Of::kAny, "new_group", ""},
    {"torch.distributed.distributed_c10d.split_group", Of::kAny, "new_group",
     ""},
    {"torch.distributed.device_mesh.DeviceMesh.__init__", Of::kMethods,
     "device_mesh", ""},
    {"torch.distributed.distributed_c10d.all_*", Of::kAny, "collective", ""},
    {"torch.distributed.distributed_c10d.barrier", Of::kAny, "collective", ""},
    {"torch.distributed.distributed_c10d.monitored_barrier", Of::kAny,
     "collective", ""},
    {"torch.distributed.distributed_c10d.broadcast*", Of::kAny, "collective",
     ""},
    {"torch.distributed.distributed_c10d.gather*", Of::kAny, "collective", ""},
    {"torch.distributed.distributed_c10d.reduce*", Of::kAny, "collective", ""},
    {"torch.distributed.distributed_c10d.scatter*", Of::kAny, "collective", ""},
    // Checkpoints.
    {"torch.serialization.save", Of::kAny, "save", ""},
    {"torch.serialization.load", Of::kAny, "load", ""},
    // What all kinds of programs use.
    // The gain is a number and not an initialised tensor: this row keeps the
    // name from the next one.
    {"torch.nn.init.calculate_gain", Of::kAny, "", ""},
    {"torch.nn.init.[a-z]*", Of::kAny, "initialiser", "initialiser"},
    {"torch.nn.functional.*dropout*", Of::kAny, "operation", "dropout"},
    {"torch.nn.functional.[a-z]*", Of::kAny, "operation", ""},
    {"torch.random.*seed*", Of::kAny, "random", "seed"},
    {"torch.cuda.random.*seed*", Of::kAny, "random", "seed"},
    {"torch.Tensor.[a-z]*", Of::kAny, "operation", ""},
};

struct ClassRow {
  const char* pattern;
  ObjectKind kind;
};

// The first that fits decides, here too: what stands in a package without being
// of its kind comes first.
constexpr ClassRow kClasses[] = {
    {"torch.nn.parameter.*", ObjectKind::kOther},
    {"torch.nn.modules.*", ObjectKind::kModule},
    {"torch.nn.parallel.*", ObjectKind::kModule},
    {"torch.optim.lr_scheduler.*", ObjectKind::kOther},
    {"torch.optim.swa_utils.*", ObjectKind::kOther},
    {"torch.optim.*", ObjectKind::kOptimizer},
    {"apex.optimizers.*", ObjectKind::kOptimizer},
    {"bitsandbytes.optim.*", ObjectKind::kOptimizer},
    {"torch.utils.data.dataloader.DataLoader", ObjectKind::kLoader},
};

bool Fits(const char* pattern, const std::string& name) {
  // `*` spans dots, so that one row covers all modules below a package.
  return fnmatch(pattern, name.c_str(), FNM_NOESCAPE) == 0;
}

// "torch.relu", and not "torch.nn.init.ones_" or "torch._assert".
bool IsOperationOfTorch(const std::string& name) {
  constexpr size_t kPrefixBytes = 6;
  return absl::StartsWith(name, "torch.") && name.size() > kPrefixBytes &&
         name.find('.', kPrefixBytes) == std::string::npos &&
         name[kPrefixBytes] >= 'a' && name[kPrefixBytes] <= 'z';
}

}  // namespace

FunctionKind KindOfFunction(const std::string& name, bool bound) {
  for (const FunctionRow& row : kFunctions) {
    // A function of the same name without self is another one.
    if (row.of == Of::kMethods && !bound) continue;
    if (!Fits(row.pattern, name)) continue;
    const std::string role = row.role;
    if (role.empty() || role == name) return {row.category, {}};
    return {row.category, {role}};
  }
  // Not a row of the table: "torch.[a-z]*" would fit the functions of all
  // packages below torch, too.
  return {IsOperationOfTorch(name) ? "operation" : "", {}};
}

ObjectKind KindOfClass(const std::string& class_name, bool has_mode) {
  for (const ClassRow& row : kClasses) {
    if (Fits(row.pattern, class_name)) return row.kind;
  }
  // Models are of the user's own classes, which no package in the table has.
  // Only modules have a mode.
  return has_mode ? ObjectKind::kModule : ObjectKind::kOther;
}

bool IsTensorClass(const std::string& class_name) {
  return Fits("torch.*Tensor", class_name) ||
         absl::StrContains(class_name, "Parameter");
}

}  // namespace traincheck
