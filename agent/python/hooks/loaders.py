"""DataLoaders, their iterators, and the fetches of their workers."""

from torch.utils.data import dataloader
from torch.utils.data._utils import fetch

from _traincheck.wrapping import wrap_method


class _Loaders:
    def __init__(self, watch):
        self._watch = watch

    def created(self, token, args, kwargs, result, error):
        if error is None:
            self._watch.process.active = True
            self._watch.loaders.begin(args[0], result)

    def fetched(self, token, args, kwargs, result, error):
        watch, iterator = self._watch, args[0]
        loader = watch.loaders.loader_of(iterator)
        if not loader:
            return
        if error is None:
            watch.clock.batch_fetched(loader)
            watch.loaders.fetched(iterator, iterator._num_yielded - 1)
        elif isinstance(error, StopIteration):
            watch.clock.iterator_ended(loader)
            watch.loaders.exhausted(iterator)

    def fetches(self, args, kwargs):
        self._watch.process.loads_data()


def install(watch):
    loaders = _Loaders(watch)
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
        wrap_method(watch, cls, "fetch", "fetch", before=loaders.fetches)
