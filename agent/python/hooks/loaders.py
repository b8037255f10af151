"""DataLoaders, their iterators, and the fetches of their workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from _traincheck.averages import NAME as AVERAGES
from _traincheck.awake import NEW_DATA
from _traincheck.class_tables import NAME as CLASSES_APART
from _traincheck.drawn_weights import NAME as TOO_FEW_WEIGHTS
from _traincheck.drawn_weights import too_few
from _traincheck.dropped_samples import NAME as LEAVES_OUT
from _traincheck.evaluations import NAME as IN_TRAINING
from _traincheck.first_batches import ALIKE, BEGINS_AGAIN
from _traincheck.inputs_and_targets import NAME as TARGET_AMONG_INPUTS
from _traincheck.masked_ends import NAME as ENDS_MASKED
from _traincheck.moved_parts import NAME as MOVED_APART
from _traincheck.observing import observe
from _traincheck.ordered_training import NAME as NEVER_SHUFFLES
from _traincheck.random_evaluations import NAME as DRAWS_IN_EVALUATION
from _traincheck.repeated_rows import NAME as REPEATS_ROWS
from _traincheck.rank_rows import NAME as ROWS_DIFFER
from _traincheck.rank_splits import NAME as SPLITS_DIFFER
from _traincheck.replaced_transforms import NAME as TRANSFORM_REPLACED
from _traincheck.resized_masks import NAME as INTERPOLATES
from _traincheck.sampler_orders import NAME as ORDERS_DIFFER
from _traincheck.scaled_splits import NAME as SCALED_BEFORE
from _traincheck.short_passes import NAME as ENDS_EARLY
from _traincheck.unused_splits import NAME as IGNORES_SPLIT
from _traincheck.worker_copies import NAME as WORKERS_HOLD_OLD
from _traincheck.wrapping import wrap_method

if TYPE_CHECKING:
    from typing import Any

    from traincheck_core import Args, Kwargs

    from _traincheck.watch import Watch


class _Loaders:
    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def created(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        if error is None:
            self._watch.process.active = True
            self._watch.loaders.begin(args[0], result)
            loader = self._watch.loaders.loader_of(result)
            self._watch.awake.add(NEW_DATA)
            self._watch.untrained_passes.read(loader)
            self._watch.evaluations.pass_begins(loader)
            self._watch.still_copies.pass_begins()
            self._watch.first_batches.pass_begins(args[0], loader)
            self._say(loader, TOO_FEW_WEIGHTS, too_few(args[0]))
            self._watch.source_looks.pass_begins(args[0])
            self._watch.empty_passes.pass_begins(args[0])
            self._watch.schedules.pass_begins(args[0])
            self._watch.unused_splits.pass_begins(args[0])
            self._watch.replaced_transforms.pass_begins(args[0])
            self._watch.ordered_training.pass_begins(args[0], loader)
            self._watch.carried_states.pass_begins(args[0], loader)
            self._watch.repeated_rows.pass_begins(args[0], loader)
            self._watch.trained_rows.pass_begins(args[0], loader)
            self._watch.ungathered_shares.pass_begins(args[0], loader)
            together = self._watch.scaled_splits.pass_begins(args[0])
            self._say(loader, SCALED_BEFORE, together)
            differs = self._watch.rank_splits.pass_begins(args[0])
            self._say(loader, SPLITS_DIFFER, differs)
            apart = self._watch.sampler_orders.pass_begins(args[0])
            self._say(loader, ORDERS_DIFFER, apart)
            rows = self._watch.rank_rows.pass_begins(args[0])
            self._say(loader, ROWS_DIFFER, rows)
            apart = self._watch.class_tables.pass_begins(args[0])
            self._say(loader, CLASSES_APART, apart)
            stale = self._watch.worker_copies.pass_begins(args[0], result)
            self._say(loader, WORKERS_HOLD_OLD, stale)

    def fetched(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        watch, iterator = self._watch, args[0]
        if isinstance(error, StopIteration):
            watch.untrained_passes.data_ended()
        loader = watch.loaders.loader_of(iterator)
        if not loader:
            return
        if error is None:
            watch.clock.batch_fetched(loader)
            watch.untrained_passes.read(loader)
            watch.last_losses.fetched(loader)
            watch.carried_states.fetched(loader)
            watch.rank_draws.batch_fetched()
            index = iterator._num_yielded - 1
            left_out = watch.dropped_samples.fetched(iterator, index)
            self._say(loader, LEAVES_OUT, left_out)
            watch.loaders.fetched(iterator, index)
            watch.worker_batches.fetched(iterator, loader, result)
            if watch.loaders.is_first_batch(iterator, index):
                watch.awake.add(NEW_DATA)
                for name, value in watch.input_scales.first_batch(result).items():
                    self._say(loader, name, value)
                if not watch.samplers.repeats_one(iterator):
                    self._say(loader, ALIKE, watch.first_batches.first_batch(result))
            again = watch.first_batches.fetched(loader, result)
            self._say(loader, BEGINS_AGAIN, again)
            self._say(loader, ENDS_MASKED, watch.masked_ends.fetched(loader, result))
            drawn = watch.balanced_draws.fetched(iterator, index)
            watch.row_orders.fetched(loader, result, drawn)
            copied = watch.targets_among_inputs.fetched(loader, result)
            self._say(loader, TARGET_AMONG_INPUTS, copied)
            drew = watch.random_evaluations.fetched()
            self._say(loader, DRAWS_IN_EVALUATION, drew)
            trained = watch.first_batches.trained_with(loader)
            for name, value in watch.trained_rows.fetched(loader, result, trained):
                self._say(loader, name, value)
            if index == 1:
                self._second_batch(loader, iterator, trained)
            self._say(loader, IN_TRAINING, watch.evaluations.fetched(loader))
            self._say(loader, AVERAGES, watch.averages.fetched())
            self._fetched_here(loader, iterator, result)
            apart = watch.moved_parts.fetched(iterator, result)
            self._say(loader, MOVED_APART, apart)
        elif isinstance(error, StopIteration):
            self._pass_ended(loader, iterator)

    def _pass_ended(self, loader: int, iterator: Any) -> None:
        watch = self._watch
        watch.clock.iterator_ended(loader)
        watch.worker_batches.ended(iterator, loader)
        watch.ungathered_shares.pass_ended(loader)
        if watch.first_batches.trained_with(loader):
            watch.schedules.pass_ended(loader)
            watch.class_tables.trained_with(getattr(iterator, "_dataset", None))
            watch.leftover_gradients.pass_ended()
            early = watch.short_passes.pass_ended(loader, iterator)
            self._say(loader, ENDS_EARLY, early)
        watch.loaders.exhausted(iterator)

    def _fetched_here(self, loader: int, iterator: Any, batch: Any) -> None:
        """Of what no worker has read."""
        fetcher = getattr(iterator, "_dataset_fetcher", None)
        if fetcher is not None:
            self._watch.written_data.fetched(fetcher.dataset, loader, batch)
            resized = self._watch.resized_masks.fetched(fetcher.dataset, batch)
            self._say(loader, INTERPOLATES, resized)

    def _second_batch(self, loader: int, iterator: Any, trained: bool) -> None:
        """Of each pass: what the first one was for is known."""
        watch = self._watch
        if trained:
            watch.vanishing_rates.pass_goes_on()
            watch.class_tables.trained_with(getattr(iterator, "_dataset", None))
            self._say(loader, IGNORES_SPLIT, watch.unused_splits.trained_with())
            replaced = watch.replaced_transforms.trained_with()
            self._say(loader, TRANSFORM_REPLACED, replaced)
            in_order = watch.ordered_training.trained_with(loader)
            self._say(loader, NEVER_SHUFFLES, in_order)
        repeats = watch.repeated_rows.second_batch(loader, trained)
        self._say(loader, REPEATS_ROWS, repeats)

    def _say(self, loader: int, name: str, value: float | None) -> None:
        core = self._watch.core
        if value is not None:
            core.record_scalar(loader, core.POINT_FETCH, 0, name, value)

    def fetches(self, args: Args, kwargs: Kwargs) -> None:
        self._watch.process.loads_data()
        indices = args[1] if len(args) > 1 else None
        self._watch.written_data.fetches(args[0].dataset, indices)
        self._watch.random_evaluations.fetch_begins(args[0].dataset)

    def fetch_ended(
        self,
        token: Any,
        args: Args,
        kwargs: Kwargs,
        result: Any,
        error: BaseException | None,
    ) -> None:
        self._watch.random_evaluations.fetch_ended()
        self._watch.generators.fetch_ended()


def install(watch: Watch) -> None:
    loaders = _Loaders(watch)

    def made(loader: Any, args: Args, result: Any) -> None:
        watch.loaders.made(loader)

    observe(watch, dataloader.DataLoader, "__init__", after=made)
    wrap_method(
        watch,
        dataloader.DataLoader,
        "__iter__",
        "loader_iter",
        after=loaders.created,
    )
    wrap_method(
        watch,
        dataloader._BaseDataLoaderIter,
        "__next__",
        "loader_next",
        after=loaders.fetched,
    )
    for cls in fetch._BaseDatasetFetcher.__subclasses__():
        wrap_method(
            watch,
            cls,
            "fetch",
            "fetch",
            before=loaders.fetches,
            after=loaders.fetch_ended,
        )
