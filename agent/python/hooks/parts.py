"""A part of a model: one submodule with the variables that it owns."""

import weakref

import torch


class Part:
    """Names tensors by (submodule, key), so that nothing here keeps one alive."""

    __slots__ = ("module", "path", "params", "buffers", "claim", "_seen")

    def __init__(self, module, path, claim):
        self.module = weakref.ref(module)
        self.claim = claim  # ThreadClaim
        self.path = path
        self.params = []  # (key, variable)
        self.buffers = []
        self._seen = _content(module)

    def changed(self):
        """Are its parameters, buffers' names or children others than at first?

        Buffers are compared by name: models may assign new ones every step.
        """
        module = self.module()
        return module is not None and _content(module) != self._seen

    def same_as(self, former):
        """Has `former`, of the same path, the same tensors under the same names?"""
        return (
            former is not None
            and former.params == self.params
            and former.buffers == self.buffers
            and former._seen[0] == self._seen[0]
        )

    def lent(self):
        """Has something put tensors that are no parameters in their places?"""
        module = self.module()
        return module is not None and not all(
            value is None or isinstance(value, torch.nn.Parameter)
            for value in module._parameters.values()
        )

    def collect_params(self, variables, tensors):
        module = self.module()
        if module is not None:
            _collect(module._parameters, self.params, variables, tensors)

    def collect_buffers(self, variables, tensors):
        module = self.module()
        if module is not None:
            _collect(module._buffers, self.buffers, variables, tensors)


def _collect(table, rows, variables, tensors):
    for key, variable in rows:
        tensor = table.get(key)
        if tensor is not None:
            variables.append(variable)
            tensors.append(tensor)


def _content(module):
    # An id may be used again after its object's death; then a replacement goes
    # unseen here, which costs an identity epoch and nothing else: tensors are
    # always looked up through their module.
    return (
        list(map(id, module._parameters.values())),
        [key for key, value in module._buffers.items() if value is not None],
        list(map(id, module._modules.values())),
    )
