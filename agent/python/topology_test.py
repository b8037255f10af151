"""Process groups, device meshes, collectives, what is replicated."""

import pathlib
import sys
import types
import unittest
import unittest.mock

import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from hooks_case import CORE, HooksCase, Net, PARAMS, WATCH, said, train_step
from torch.testing._internal.distributed import fake_pg  # noqa: F401

distributed = torch.distributed


class Topology(HooksCase):
    """Rank 1 of 4; nobody else is there."""

    def setUp(self):
        super().setUp()
        distributed.init_process_group(
            "fake", store=distributed.HashStore(), rank=1, world_size=4
        )

    def tearDown(self):
        if distributed.is_initialized():
            distributed.destroy_process_group()
        super().tearDown()

    def groups(self):
        return {number: row[2] for number, row in CORE.process_groups.items()}

    def collectives(self):
        return CORE.of("collective")

    def test_default_group_and_new_ones(self):
        distributed.new_group([1, 3])
        distributed.new_group([0, 2])
        self.assertEqual(self.groups(), {1: [0, 1, 2, 3], 2: [1, 3]})
        name, backend, _, mesh = CORE.process_groups[1]
        self.assertEqual((backend, mesh), ("fake", (0, 0, "")))
        self.assertEqual(name, distributed.group.WORLD.group_name)

    def test_collectives_are_numbered_by_group(self):
        pair = distributed.new_group([0, 1])
        x = torch.ones(2)
        distributed.all_reduce(x)
        distributed.all_reduce(x, distributed.ReduceOp.MAX, pair)
        distributed.broadcast(x, 0, group=pair)
        distributed.barrier()
        distributed.all_reduce(x, group=distributed.GroupMember.NON_GROUP_MEMBER)
        self.assertEqual(
            self.collectives(),
            [
                ("collective", 1, 0),
                ("collective", 2, 0),
                ("collective", 2, 1),
                ("collective", 1, 1),
            ],
        )
        log = [record[0] for record in CORE.log]
        self.assertEqual(log[log.index("collective") - 1], "begin")

    def test_collectives_inside_others_are_parts_of_them(self):
        distributed.broadcast_object_list(["x"], src=1)
        self.assertEqual(self.collectives(), [("collective", 1, 0)])

    def test_collective_that_raises(self):
        with self.assertRaises(Exception):
            distributed.all_reduce("no tensor")
        distributed.barrier()
        self.assertEqual(self.collectives()[-1], ("collective", 1, 1))

    def test_groups_of_another_time(self):
        distributed.destroy_process_group()
        distributed.init_process_group(
            "fake", store=distributed.HashStore(), rank=0, world_size=2
        )
        self.assertEqual(self.groups(), {1: [0, 1, 2, 3], 2: [0, 1]})

    def test_mesh(self):
        distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        places = {row[3][1:]: row[2] for row in CORE.process_groups.values()}
        del places[0, ""]  # the default group
        self.assertEqual(places, {(0, "dp"): [1, 3], (1, "tp"): [0, 1]})
        meshes = {row[3][0] for row in CORE.process_groups.values()}
        self.assertEqual(meshes, {0, 1})

    def test_mesh_without_names_and_without_this_rank(self):
        distributed.DeviceMesh("cpu", [0, 2])
        self.assertEqual({row[3][0] for row in CORE.process_groups.values()}, {0})
        distributed.DeviceMesh("cpu", [1, 3])
        self.assertIn((1, 0, ""), [row[3] for row in CORE.process_groups.values()])

    def test_placements_are_evidence_of_replicas(self):
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor

        mesh = distributed.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        model = Net()
        for name, placement in (("weight", Shard(0)), ("bias", Replicate())):
            value = getattr(model.head, name)
            placed = distribute_tensor(value.data, mesh, [Replicate(), placement])
            setattr(model.head, name, nn.Parameter(placed))
        WATCH.models.ensure(model)
        WATCH.topology.replicate(WATCH.models)
        self.assertEqual(
            CORE.attributes["Net.head.weight"],
            ["placement.dp=R", "placement.tp=S(0)"],
        )
        own = "shared_memory=False"
        self.assertEqual(CORE.attributes["Net.body.weight"], [own])
        weight, bias = "Net.head.weight", "Net.head.bias"
        self.assertEqual(
            sorted(CORE.replica_groups, key=str),
            [
                ("DTensor Replicate", 0, [0, 1], [bias]),
                ("DTensor Replicate", 0, [1, 3], [weight, bias]),
            ],
        )
        WATCH.topology.replicate(WATCH.models)
        self.assertEqual(len(CORE.replica_groups), 2)

    def averages(self, reduce):
        """Trains with gradients that `reduce` sums over the ranks."""
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.ones(5, 3)).sum().backward()
            reduce(list(model.parameters()))
            optimizer.step()
        return CORE.replica_groups

    def test_gradients_averaged_one_by_one_are_of_replicas(self):
        def reduce(parameters):
            distributed.all_reduce(torch.ones(4))
            for parameter in parameters[:2]:
                distributed.all_reduce(parameter.grad.data)
                parameter.grad /= 4

        kind = "gradients averaged by the script"
        groups = self.averages(reduce)
        self.assertEqual(groups, [(kind, 0, [0, 1, 2, 3], PARAMS[:2])])

    def test_optimizers_whose_gradients_are_averaged_over_all_ranks(self):
        pair = distributed.new_group([1, 3])
        averages = WATCH.averaged_gradients
        for group, of_all in ((pair, False), (None, True)):
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(2):
                optimizer.zero_grad()
                model(torch.ones(5, 3)).sum().backward()
                for parameter in model.parameters():
                    distributed.all_reduce(parameter.grad, group=group)
                self.assertFalse(averages.of_all(optimizer) and not of_all)
                optimizer.step()
            self.assertEqual(averages.of_all(optimizer), of_all)

    def test_gradients_averaged_in_one_tensor_are_of_replicas(self):
        pair = distributed.new_group([1, 3])

        def reduce(parameters):
            flat = torch.cat([p.grad.reshape(-1) for p in parameters])
            distributed.all_reduce(flat, group=pair)

        kind = "gradients averaged by the script"
        groups = self.averages(reduce)
        self.assertEqual(groups, [(kind, 0, [1, 3], PARAMS)])

    def test_other_sums_say_nothing_of_replicas(self):
        alone = distributed.new_group([1])

        def reduce(parameters):
            distributed.all_reduce(parameters[0].data)  # models are averaged
            distributed.all_reduce(parameters[0].grad.clone())
            distributed.all_reduce(parameters[0].grad, distributed.ReduceOp.MAX)
            distributed.all_reduce(parameters[0].grad, group=alone)
            flat = torch.cat([p.data.reshape(-1) for p in parameters])
            distributed.all_reduce(flat)

        self.assertEqual(self.averages(reduce), [])

    def test_gradients_averaged_in_the_backward(self):
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda p: distributed.all_reduce(p.grad)
            )
        train_step(model, optimizer)
        self.assertEqual([row[3] for row in CORE.replica_groups], [PARAMS])

    def wrap(self, model):
        """Gradients stay as they are: the others that are not there send none."""

        def nothing(state, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        wrapper = nn.parallel.DistributedDataParallel(model)
        wrapper.register_comm_hook(None, nothing)
        return wrapper

    def test_what_trains_beside_a_wrapped_model_is_of_replicas(self):
        model = self.wrap(Net())
        scale, unused = nn.Linear(2, 1), nn.Parameter(torch.ones(2))
        everything = [*model.parameters(), *scale.parameters(), unused]
        optimizer = torch.optim.SGD(everything, lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            scale(model(torch.ones(5, 3))).sum().backward()
            optimizer.step()
        kind = "trained beside a wrapped model"
        names = ["Linear.weight", "Linear.bias"]
        expected = [(kind, 0, [0, 1, 2, 3], names)]
        self.assertEqual(CORE.replica_groups[1:], expected)

    def test_experts_of_each_rank_are_not(self):
        model, experts = self.wrap(Net()), nn.Linear(2, 1)
        everything = [*model.parameters(), *experts.parameters()]
        optimizer = torch.optim.SGD(everything, lr=0.1)
        rows = model(torch.ones(4, 3))
        distributed.all_to_all_single(torch.empty(4, 2), rows.detach())
        experts(rows).sum().backward()
        optimizer.step()
        self.assertEqual(len(CORE.replica_groups), 1)

    def test_what_the_wrapper_leaves_out_is_not(self):
        inner = Net()
        DDP = nn.parallel.DistributedDataParallel
        DDP._set_params_and_buffers_to_ignore_for_model(inner, ["head.weight"])
        model = self.wrap(inner)
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(len(CORE.replica_groups), 1)

    def test_attributes_of_megatron(self):
        model = Net()
        model.head.weight.tensor_model_parallel = True
        model.head.weight.partition_dim = 0
        model.head.bias.allreduce = False
        model.head.bias.something_else = True
        train_step(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(
            CORE.attributes["Net.head.weight"],
            ["tensor_model_parallel=True", "partition_dim=0", "shared_memory=False"],
        )
        self.assertEqual(
            CORE.attributes["Net.head.bias"], ["allreduce=False", "shared_memory=False"]
        )

    def test_ranks_whose_models_are_averaged_train_apart(self):
        from torch.distributed.algorithms.model_averaging import averagers

        before = nn.parallel.DistributedDataParallel(Net())
        count = len(CORE.replica_groups)
        averagers.PeriodicModelAverager(period=4)
        dissolved = CORE.replica_groups[count:]
        (kind, wrapper, _, variables) = CORE.replica_groups[count - 1]
        self.assertEqual(dissolved, [(kind, wrapper, [1], variables)])
        behind = nn.parallel.DistributedDataParallel(Net())
        self.assertEqual(CORE.replica_groups[-1][2], [1])
        for wrapper in (before, behind):
            wrapper.module(torch.ones(2, 3)).sum().backward()
            said = [row[-1] for row in CORE.of("scalar") if "wrapped.is_frozen" in row]
            self.assertEqual(said[-1], 1.0)
            CORE.log.clear()

    def test_the_forward_of_a_wrapper_is_a_call_of_it(self):
        wrapper = nn.parallel.DistributedDataParallel(Net())
        for call, frozen in (
            (wrapper.forward, [1.0]),
            (wrapper, [0.0]),
            (wrapper.module, []),
        ):
            CORE.log.clear()
            call(torch.ones(2, 3))
            said = [row[-1] for row in CORE.of("scalar") if "wrapped.is_frozen" in row]
            self.assertEqual(said, frozen)

    def test_an_average_of_models_is_no_accident(self):
        from torch.distributed.algorithms.model_averaging import averagers

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train_step(model, optimizer)
        averager = averagers.PeriodicModelAverager(period=2, warmup_steps=1)
        for averages in (0, 1, 0, 1):
            CORE.log.clear()
            averager.average_parameters(model.parameters())
            self.assertEqual(CORE.states(CORE.POINT_LOAD), [PARAMS] * averages)

    def test_a_rank_whose_inputs_have_ended(self):
        wrapper = nn.parallel.DistributedDataParallel(Net())
        optimizer = torch.optim.SGD(wrapper.parameters(), lr=0.1)
        other = torch.optim.SGD(Net().parameters(), lr=0.1)
        train_step(wrapper.module, optimizer)
        hook = wrapper.join_hook()
        for synchronised, skips in ((True, 1), (False, 0)):
            CORE.log.clear()
            # The fake group tells the rank that the others go on, or within no_sync.
            reduces = lambda is_joined_rank: synchronised
            wrapper._check_and_sync_module_buffers = lambda: None
            wrapper._check_global_requires_backward_grad_sync = reduces
            hook.main_hook()
            marks = [e for e in CORE.of("mark") if e[1] == CORE.MARK_STEP_SKIPPED]
            held = WATCH.holds.ensure(optimizer)
            self.assertEqual([e[2:] for e in marks], [(held.number, 1)] * skips)
            self.assertEqual(held.steps, 2)
        wrapper._sync_final_model = lambda is_last: None
        hook.post_hook(True)
        self.assertEqual(CORE.states(CORE.POINT_LOAD), [PARAMS])
        self.assertEqual(WATCH.holds.ensure(other).steps, 0)

    def test_a_schedule_that_counts_the_batches_of_all_ranks(self):
        """accelerate moves one by the number of ranks (4) with each step."""
        for module, moved in (("accelerate.scheduler", [1.0]), ("another", [4.0])):
            HooksCase.setUp(self)
            model = Net()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
            named = {module: types.ModuleType(module)}
            with unittest.mock.patch.dict(sys.modules, named):
                for _ in range(3):
                    train_step(model, optimizer)
                    for _ in range(4):
                        scheduler.step()
            self.assertEqual(said("schedule_moved"), moved, module)

    def test_memory_that_processes_share(self):
        model = Net().share_memory()
        model.head.bias = nn.Parameter(torch.zeros(model.head.bias.shape))
        WATCH.models.ensure(model)
        for name in PARAMS:
            shared = name != "Net.head.bias"
            self.assertEqual(CORE.attributes[name], [f"shared_memory={shared}"])

    def test_memory_of_subclasses_is_not_asked_for(self):
        class Odd(torch.Tensor):
            asked = []

            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                cls.asked.append(function)
                return super().__torch_function__(function, types, args, kwargs)

        model = nn.Linear(2, 2)
        model.weight = nn.Parameter(torch.ones(2, 2).as_subclass(Odd))
        WATCH.models.ensure(model)
        self.assertNotIn(torch.Tensor.is_shared, Odd.asked)
        self.assertEqual(CORE.attributes["Linear.weight"], ["shared_memory=False"])


if __name__ == "__main__":
    unittest.main()
