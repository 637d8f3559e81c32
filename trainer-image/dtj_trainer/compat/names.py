"""Private names that modules outside of this package use on objects of Keras, because they work with its internals.

Every such name is listed here: a test compares the list with the code, and the self-check looks for each name on an
object of the installed library. Must not import TensorFlow.
"""

from collections.abc import Mapping

USED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "keras": {
        "model": (
            "_call_has_training_arg",
            "_compile_loss",
            "_compile_metrics",
            "_compute_loss_has_training_arg",
            "_flatten_layers",
            "_loss_tracker",
            "_maybe_symbolic_build",
            "_symbolic_build",
        ),
        "functional model": ("_outputs_struct",),
        "layer": ("_losses", "_loss_ids"),
        "losses of a model": ("_flat_losses", "_user_loss", "_user_loss_weights"),
        "metrics of a model": ("_user_metrics", "_user_weighted_metrics"),
        "loss": ("_fn_kwargs",),
        "optimizer": (
            "_accumulated_gradients",
            "_all_reduce_sum_gradients",
            "_apply_weight_decay",
            "_backend_apply_gradients",
            "_backend_reset_gradient_accumulators",
            "_backend_update_step",
            "_clip_gradients",
            "_distribution_strategy",
            "_get_variable_index",
            "_iterations",
            "_learning_rate",
            "_model_variables_moving_average",
            "_overwrite_model_variables_with_average_value",
            "_trainable_variables",
            "_update_model_variables_moving_average",
            "_use_weight_decay",
        ),
        "batch normalization": ("_moments", "_reduction_axes"),
        "masked tensor": ("_keras_mask",),
    },
    "tf_keras": {
        "model": ("_configure_steps_per_execution", "_flatten_layers", "_is_compiled"),
        "losses of a model": ("_user_losses", "_user_loss_weights"),
        "metrics of a model": ("_user_metrics", "_user_weighted_metrics"),
        "loss": ("_fn_kwargs",),
        "optimizer": ("_learning_rate",),
        "batch normalization": ("_sync_calculate_mean_and_var",),
        "optimizer with a loss scale": ("_loss_scale",),
        "loss scale": ("_counter", "_current_loss_scale"),
        "masked tensor": ("_keras_mask",),
    },
}
"""Library -> what the self-check makes -> names that it has."""
