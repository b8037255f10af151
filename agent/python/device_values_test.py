"""Values of tensors that come at once, later, in order, or never."""

import pathlib
import sys
import unittest

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import core_for_testing

core_for_testing.hooks_package()
from _traincheck import device_values


class DeviceValues(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.core = core_for_testing.RecordingCore()
        self.core.device = True
        self.missed = 0
        self.values = device_values.DeviceValues(self.core, self._miss)
        self.taken = []

    def _miss(self):
        self.missed += 1

    def read(self, *tensors):
        self.values.read(tensors, self.taken.append)

    def test_at_once_where_they_can_be_read(self):
        self.core.device = False
        tensor = torch.ones(3, requires_grad=True)
        self.read(tensor)
        ((found,),) = self.taken
        self.assertEqual(found.data_ptr(), tensor.data_ptr())
        self.assertFalse(found.requires_grad)

    def test_as_they_were_with_type_and_shape(self):
        tensors = [
            torch.randn(2, 3).bfloat16(),
            torch.tensor(7),
            torch.tensor([True, False]),
            torch.randn(2, dtype=torch.complex64),
            torch.empty(0, 4),
        ]
        expected = [tensor.clone() for tensor in tensors]
        self.read(*tensors)
        for tensor in tensors:
            tensor.zero_()
        self.assertEqual(self.taken, [])
        self.values.poll()
        (found,) = self.taken
        for one, other in zip(found, expected):
            self.assertEqual((one.dtype, one.shape), (other.dtype, other.shape))
            self.assertTrue(torch.equal(one, other))
        self.values.poll()
        self.assertEqual(len(self.taken), 1)

    def test_in_the_order_in_which_they_were_asked_for(self):
        for number in range(3):
            self.read(torch.tensor(number))
        first, *others = self.core.copies()
        self.core.copied = others
        self.values.poll()
        self.assertEqual(self.taken, [])
        self.core.copied = [first]
        self.values.poll()
        self.assertEqual([found[0].item() for found in self.taken], [0, 1, 2])

    def test_what_never_comes(self):
        self.read(torch.ones(1))
        ((number, _),) = self.core.copies()
        self.core.copied = [(number, None)]
        self.values.poll()
        self.assertEqual((self.taken, self.missed), ([], 1))

    def test_one_look_less_is_no_blindness(self):
        begin = self.core.copy_to_host
        self.core.copy_to_host = lambda tensors: 0
        self.read(torch.ones(1))
        self.assertEqual(self.missed, 1)  # nothing was ever read
        self.core.copy_to_host = begin
        self.read(torch.ones(1))
        self.values.poll()
        self.core.copy_to_host = lambda tensors: 0
        self.read(torch.ones(1))
        self.assertEqual((len(self.taken), self.missed), (1, 1))


if __name__ == "__main__":
    unittest.main()
