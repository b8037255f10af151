"""The healthy programs from which tests/errors learns: name -> arguments."""

REFERENCES = {
    "cnn_ddp": ("--steps", "12", "--steps-per-epoch", "4"),
    "mlp_ddp": ("--steps", "12"),
    "denoiser": ("--steps", "18"),
    "gru_tagger": ("--steps", "18"),
    "mnist_cnn": ("--steps", "12"),
    "vae": ("--steps", "12"),
    "char_gpt": ("--steps", "18"),
    "patch_classifier": (
        *("--steps", "16", "--steps-per-epoch", "2"),
        *("--workers", "3"),
    ),
    "amp_forecaster": ("--steps", "12"),
    "amp_ranker": ("--steps", "12"),
}
