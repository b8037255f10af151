"""Without any reference run: each built-in rule's mistake is found by the rule that
is about it, and the same program without the mistake is quiet."""

import concurrent.futures
import unittest

import harness

SCRIPT = harness.SCRIPTS / "built_in.py"
# The case, and words of the rule that must say it.
FOUND_BY = {
    "copied_parameters": "gradient",
    "replaced_parameter": "was replaced",
    "frozen_parameters": "requires a gradient",
    "cut_gradient": "by the third step",
    "no_backward": "backward",
    "cleared_gradient": "non-zero gradient",
    "left_in_evaluation": "training mode",
    "dropout_in_evaluation": "drops",
    "broadcast_loss": "size",
    "clipped_while_scaled": "clip_grad_norm_",
    "stepped_while_scaled": "an optimizer steps: gradients are still",
    "saved_other_values": "equal to the model as it is when it is saved",
    "saved_in_part": "holds a part of a module",
    "saved_without_a_head": "holds a part of a module",
    "saved_once_more": "of its own moment",
    "saved_while_training": "another thread saves",
    "forgotten_moments": "that was read is loaded",
    "one_seed": "workers",
}

STEPS = harness.SCRIPTS / "built_in_steps.py"
FOUND_IN_STEPS = {
    "softmax_twice": "softmax",
    "sigmoid_twice": "sigmoid",
    "nll_of_scores": "logarithms",
    "each_with_each": "all targets",
    "unequal_means": "equally many targets",
    "never_cleared": "cleared",
    "clipped_after_the_step": "thrown away",
    "counter_in_bfloat16": "counter",
    "schedule_that_ended": "have been 0",
    "frozen_that_moves": "frozen",
    "frozen_in_training": "evaluation mode, as it was before",
    "one_order": "another order",
}
SIGNS = harness.SCRIPTS / "built_in_signs.py"
FOUND_BY_SIGNS = {
    "copied_loss": "no computation leads to",
    "softmax_over_samples": "over the samples",
    "kl_of_probabilities": "kl_div",
    "cut_checkpoint": "passes no gradient on",
    "best_by_reference": "loads its own tensors",
    "clipping_of_nothing": "no parameter at all",
    "cleared_micro_batches": "cleared before the step",
    "frozen_by_an_attribute": "attribute of its module",
    "layers_in_a_list": "plain list",
    "layer_made_in_forward": "forwards make layers",
    "optimizer_made_anew": "made anew",
    "loss_of_nan": "not finite",
    "seeded_in_each_step": "of the step before",
    "steps_below_precision": "stand still",
    "float16_without_a_scale": "no GradScaler",
    "workers_that_repeat": "give the same batch",
    "one_layer_many_times": "several times in a row",
    "unfrozen_for_nobody": "unfrozen or added later",
    "scheduler_first": "stepped before its first step",
    "split_twice": "some of the samples",
    "average_without_statistics": "have seen no batch",
    "summed_means": "adds up means",
    "names_that_do_not_fit": "no name of the state",
    "initialised_after_the_load": "is gone before the first step",
    "data_normalised_in_place": "by handing them out",
    "labels_of_minus_one": "below 0 or above 1",
}
MODELS = harness.SCRIPTS / "built_in_models.py"
FOUND_IN_MODELS = {
    "attention_over_queries": "over the queries",
    "layer_of_one_number": "same weights and keep them",
    "adam_in_half": "is 0 in float16",
    "target_of_random_numbers": "did not begin as its copy",
}
SEQUENCES = harness.SCRIPTS / "built_in_sequences.py"
FOUND_IN_SEQUENCES = {
    "attention_without_a_mask": "that it is to predict",
    "targets_without_a_shift": "the token that it is given",
    "padding_in_the_loss": "predictions of padding",
    "inverted_mask": "keeps to the padding",
    "mask_of_zeros_and_ones": "zeros and ones",
    "batch_in_the_place_of_time": "steps of one sequence",
    "labels_of_zero_and_one": "must be 1 and -1",
    "blank_among_the_targets": "contain the blank",
    "ctc_of_scores": "ctc_loss is given scores",
    "target_with_a_gradient": "hands gradients back",
    "one_class_after_the_other": "through the classes",
    "evaluation_of_raw_values": "another scale",
    "evaluation_in_training_mode": "evaluated on them in training mode",
    "one_buffer_for_all_samples": "samples of a batch are alike",
    "first_batch_for_ever": "begins the data anew",
    "momentum_of_the_old_statistics": "statistics of the last batch",
    "dropout_of_what_is_kept": "drops most",
    "labels_shifted_twice": "the token after the next one",
    "penalty_of_pixels": "of parts of a sample's gradient",
    "one_region_for_all_steps": "weights of before its last step",
    "rate_reset_on_resume": "undone the rates",
    "twin_among_all": "likeness to itself",
    "several_labels": "several labels",
    "schedule_for_nobody": "none of its schedulers",
    "one_cycle_of_epochs": "OneCycleLR is not stepped",
}
UPKEEP = harness.SCRIPTS / "built_in_upkeep.py"
FOUND_IN_UPKEEP = {
    "leftover_micro_batches": "the epoch before has left",
    "anothers_gradients": "another optimizer's loss",
    "momentum_made_anew": "nothing but the latest gradient",
    "scale_made_anew": "loss scale begins anew",
    "weights_of_classes": "fewer weights",
    "last_states_that_mix": "mixes the samples",
}
ADVICE = {
    "scale_made_anew",
    "padding_in_the_loss",
    "dropout_of_what_is_kept",
    "unequal_means",
    "optimizer_made_anew",
    "float16_without_a_scale",
    "one_layer_many_times",
    "scheduler_first",
    "summed_means",
}


class Watching(harness.SharedDaemonCase):
    def watch(self, run: str, script, *arguments: str, decided: int = 5) -> list:
        """Violations of a run that nobody gave a set, and that so many rules judged."""
        done = self.monitored(
            script,
            *arguments,
            options=("--run", run),
            TRAINCHECK_BUDGET="off",
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        shown = self.daemon.run_ended(run)
        self.assertEqual(shown["check_set"], "builtin")
        self.assertGreaterEqual(shown["check"]["decided"], decided, shown["check"])
        return self.daemon.ctl("violations", "list", "--run", run)

    def each_is_found(self, script, words_of: dict) -> None:
        with concurrent.futures.ThreadPoolExecutor(2) as side_by_side:
            found = dict(
                side_by_side.map(
                    lambda case: (case, self.watch(case, script, case)), words_of
                )
            )
        for case, words in words_of.items():
            grade = "advice" if case in ADVICE else "alert"
            texts = [v["text"] for v in found[case] if v["grade"] == grade]
            with self.subTest(case):
                self.assertTrue(any(words in text for text in texts), found[case])


class BuiltInRules(Watching):
    def test_each_mistake_is_found_without_a_reference_run(self):
        self.each_is_found(SCRIPT, FOUND_BY)

    def test_each_mistake_in_steps_is_found(self):
        self.each_is_found(STEPS, FOUND_IN_STEPS)

    def test_what_to_do_is_said(self):
        [violation, *_] = self.watch("advised", SCRIPT, "broadcast_loss")
        shown = self.daemon.ctl("violations", "show", violation["id"])
        self.assertIn("broadcast", shown["why"])
        self.assertIn("view_as", shown["fix"])
        self.assertTrue(shown["reference"].startswith("https://"), shown)

    def test_the_same_without_mistakes_is_quiet(self):
        right = self.watch(
            "right", SCRIPT, "--right", *FOUND_BY, decided=len(set(FOUND_BY.values()))
        )
        self.assertEqual(right, [])
        right = self.watch(
            "right-steps",
            STEPS,
            "--right",
            *FOUND_IN_STEPS,
            decided=len(FOUND_IN_STEPS),
        )
        self.assertEqual(right, [])

    def test_replicas_that_drift_apart(self):
        script = harness.SCRIPTS / "drift_ddp.py"
        broken = self.watch("drift", script, "--fault-step", "3", "--steps", "8")
        relations = {violation["relation"] for violation in broken}
        self.assertIn("Consistent", relations, broken)
        self.assertEqual(min(v["first_step"] for v in broken), 3, broken)
        fine = self.watch("no-drift", script, "--fault-step", "99", "--steps", "8")
        self.assertEqual(fine, [])

    def test_ranks_that_read_the_same_rows(self):
        script = harness.SCRIPTS / "rows_ddp.py"
        [same] = self.watch("same-rows", script, "--same")
        self.assertIn("given different data", same["text"])
        self.assertEqual((same["ranks"], same["first_step"]), ([0, 1], 1), same)
        self.assertEqual(self.watch("own-rows", script), [])

    def test_shared_weights_that_drift_apart_without_a_wrapper(self):
        script = harness.SCRIPTS / "rows_by_hand.py"
        [drift] = self.watch("clipped-apart", script, "--fault-step", "3")
        self.assertIn("get equal gradients", drift["text"])
        self.assertEqual((drift["ranks"], drift["first_step"]), ([0, 1], 3), drift)
        self.assertEqual(self.watch("shared", script), [])

    def test_weights_of_their_own_and_averaged_gradients(self):
        script = harness.SCRIPTS / "averaged_by_hand.py"
        for way in ([], ["--flat"]):
            name = "-".join(["by-hand", *(option.strip("-") for option in way)])
            [apart] = self.watch(f"{name}-apart", script, "--own-weights", *way)
            self.assertIn("have equal parameters", apart["text"])
            self.assertEqual((apart["ranks"], apart["first_step"]), ([0, 1], 0), apart)
            self.assertEqual(self.watch(name, script, *way), [])

    def test_what_trains_beside_the_wrapper(self):
        script = harness.SCRIPTS / "rows_ddp.py"
        found = self.watch("bare-scale", script, "--bare")
        texts = {violation["text"] for violation in found}
        self.assertEqual({v["first_step"] for v in found}, {0}, found)
        self.assertTrue(any("have equal parameters" in text for text in texts), texts)
        self.assertTrue(all("weight" in str(v) for v in found), found)

    def test_a_stored_run_is_checked_against_them(self):
        done = self.monitored(
            SCRIPT, "broadcast_loss", options=("--run", "plain", "--collect", "--full")
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIsNone(self.daemon.run_ended("plain")["check"])
        checked = self.daemon.ctl("check", "--run", "plain")
        self.assertEqual(checked["set"], "builtin")
        texts = [violation["text"] for violation in checked["violations"]]
        self.assertTrue(any("size" in text for text in texts), texts)

    def test_the_daemon_lists_them_and_nobody_else_takes_their_name(self):
        [row] = [r for r in self.daemon.ctl("sets", "list") if r["name"] == "builtin"]
        self.assertEqual(row["version"], 1)
        rules = self.daemon.ctl("invariants", "list", "builtin")
        self.assertEqual(len(rules), row["invariants"])
        with self.assertRaisesRegex(AssertionError, "that the daemon has of itself"):
            self.daemon.ctl("infer", "--from", "right", "--set", "builtin")


class WhatTheAgentLooksFor(Watching):
    """A daemon of its own: it is the other half of the time."""

    def test_each_mistake_is_found(self):
        self.each_is_found(SIGNS, FOUND_BY_SIGNS)

    def test_each_mistake_in_a_model_is_found(self):
        self.each_is_found(MODELS, FOUND_IN_MODELS)

    def test_each_mistake_in_what_is_carried_over_is_found(self):
        self.each_is_found(UPKEEP, FOUND_IN_UPKEEP)

    def test_each_mistake_with_sequences_and_labels_is_found(self):
        # In one process: what is looked at is looked at anew in each place.
        found = self.watch("sequences", SEQUENCES, *FOUND_IN_SEQUENCES)
        for case, words in FOUND_IN_SEQUENCES.items():
            grade = "advice" if case in ADVICE else "alert"
            texts = [v["text"] for v in found if v["grade"] == grade]
            with self.subTest(case):
                self.assertTrue(any(words in text for text in texts), texts)

    def test_the_same_without_mistakes_is_quiet(self):
        for script, found in (
            (SIGNS, FOUND_BY_SIGNS),
            (MODELS, FOUND_IN_MODELS),
            (SEQUENCES, FOUND_IN_SEQUENCES),
        ):
            name = f"right-{script.stem}"
            right = self.watch(name, script, "--right", *found, decided=len(found))
            self.assertEqual(right, [])
        for case in FOUND_IN_UPKEEP:  # several optimizers hide whose a backward is
            with self.subTest(case):
                right = self.watch(f"right-{case}", UPKEEP, "--right", case)
                self.assertEqual(right, [])


if __name__ == "__main__":
    unittest.main()
