//! Makes the bundled model from the recipe in the repository.
//!
//! Nothing here knows how a model is trained: that is the recipe's. Invariant: what is made depends only on the recipe
//! and its pinned requirements.

use std::process::Command;

use clap::{Args, Subcommand};

use crate::{
    failure::{Failure, Outcome},
    place::Place,
    python, shell,
};

/// Which model.
#[derive(Subcommand)]
pub(crate) enum Model {
    /// models/tiny: train, export and measure it (an hour or so on two cores)
    Tiny(Tiny),
}

/// Arguments of `model tiny`.
#[derive(Args)]
pub(crate) struct Tiny {
    /// Arguments for the recipe itself, after `--` (try `-- --help`)
    #[arg(last = true)]
    recipe: Vec<String>,
}

/// Runs the recipe in its own environment.
pub(crate) fn make(place: &Place, model: &Model) -> Outcome {
    let Model::Tiny(options) = model;
    let recipe = place.root.join("models/tiny/recipe");
    let script = recipe.join("make.py");
    if !script.exists() {
        return Err(Failure::new("models/tiny/recipe/make.py is missing").remedy("git checkout models/tiny"));
    }
    let python = python::environment(place, "model-tiny", &recipe.join("requirements.txt"))?;
    shell::run(
        Command::new(python)
            .arg(script)
            .args(&options.recipe)
            .current_dir(&place.root),
    )
}
