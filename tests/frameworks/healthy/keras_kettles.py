"""Tells what a kitchen appliance does from its electric current: a functional model of
Keras 3 on the torch backend, trained by model.fit with callbacks (checkpoint of the best
epoch, ReduceLROnPlateau, early stopping that restores weights), a custom metric, L2 on
some weights, BatchNormalization and dropout; saved and loaded at the end.

    python keras_kettles.py --steps 100
"""

import argparse
import os
import tempfile

os.environ["KERAS_BACKEND"] = "torch"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import numpy as np
import torch
from keras import layers

LENGTH, KINDS, BATCH = 96, 5, 32


def currents(count, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, KINDS, count)
    t = np.arange(LENGTH)
    pace = np.array([0.25, 0.4, 0.4, 0.6, 0.25])[kind, None]
    pace = pace * rng.uniform(0.9, 1.1, (count, 1))
    x = np.sin(pace * t + rng.uniform(0, 2 * np.pi, (count, 1)))
    chopped = np.where(x > 0.3, x, 0.0)
    pulsed = x * (np.sin(0.12 * t + rng.uniform(0, 6, (count, 1))) > 0)
    x = np.where((kind == 2)[:, None], chopped, x)
    x = np.where((kind == 4)[:, None], pulsed, x)
    x = x * rng.uniform(0.5, 1.5, (count, 1)) + rng.normal(0, 0.4, (count, LENGTH))
    return x[..., None].astype("float32"), kind.astype("int64")


def block(x, filters):
    x = layers.Conv1D(filters, 7, strides=2, padding="same", use_bias=False)(x)
    x = layers.BatchNormalization(momentum=0.9)(x)
    return layers.Activation("relu")(x)


def network():
    seen = keras.Input((LENGTH, 1))
    x = block(block(block(seen, 16), 32), 48)
    both = [layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)]
    x = layers.Dropout(0.2)(layers.Concatenate()(both))
    x = layers.Dense(48, "gelu", kernel_regularizer=keras.regularizers.L2(1e-4))(x)
    return keras.Model(seen, layers.Dense(KINDS)(x))


@keras.saving.register_keras_serializable("kettles")
class Surprise(keras.metrics.Mean):
    """Mean of minus log of the probability of the truth, in bits."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        nats = keras.losses.sparse_categorical_crossentropy(
            y_true, y_pred, from_logits=True
        )
        return super().update_state(nats / np.log(2.0), sample_weight=sample_weight)


class Report(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        shown = ("loss", "val_loss", "val_accuracy", "val_surprise")
        text = " ".join(f"{name} {logs[name]:.4f}" for name in shown)
        steps = int(self.model.optimizer.iterations)
        print(f"step {steps} {text}", flush=True)


def callbacks(path):
    return [
        Report(),
        keras.callbacks.ModelCheckpoint(path, save_best_only=True),
        keras.callbacks.ReduceLROnPlateau(factor=0.3, patience=1, min_lr=1e-5),
        keras.callbacks.EarlyStopping(patience=4, restore_best_weights=True),
        keras.callbacks.TerminateOnNaN(),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    torch.set_num_threads(1)
    keras.utils.set_random_seed(args.seed)
    per_epoch = min(20, args.steps)
    train, held_out = currents(per_epoch * BATCH, seed=1), currents(300, seed=2)
    model = network()
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-3, weight_decay=1e-3, clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", Surprise(name="surprise")],
    )
    with tempfile.TemporaryDirectory() as folder:
        model.fit(
            *train,
            batch_size=BATCH,
            epochs=args.steps // per_epoch,
            validation_data=held_out,
            validation_batch_size=100,
            callbacks=callbacks(f"{folder}/best.keras"),
            verbose=0,
        )
        again = keras.models.load_model(f"{folder}/best.keras")
    scores = again.evaluate(*held_out, verbose=0, return_dict=True)
    print(f"from the file: loss {scores['loss']:.4f} right {scores['accuracy']:.3f}")


if __name__ == "__main__":
    main()
